package guest

// Paths, in a sandbox, of its own certificate authority: the certificate alone, and a file with this certificate
// and all those that the machine trusts.
const (
	AuthorityDir  = "/run/e2bctl"
	AuthorityFile = AuthorityDir + "/authority.pem"
	BundleFile    = AuthorityDir + "/certificates.pem"
)

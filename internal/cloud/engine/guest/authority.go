package guest

// Paths in a sandbox of its own certificate authority: the certificate alone, and together with all
// that the machine trusts.
const (
	AuthorityDir  = "/run/e2bctl"
	AuthorityFile = AuthorityDir + "/authority.pem"
	BundleFile    = AuthorityDir + "/certificates.pem"
)

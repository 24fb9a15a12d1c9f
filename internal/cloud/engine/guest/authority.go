package guest

// Paths of a sandbox's own certificate authority, inside the sandbox: a file with only its
// certificate, and a file with this certificate and all certificates that the machine trusts.
const (
	AuthorityDir  = "/run/e2bctl"
	AuthorityFile = AuthorityDir + "/authority.pem"
	BundleFile    = AuthorityDir + "/certificates.pem"
)

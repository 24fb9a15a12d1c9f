package guest

// Paths inside a sandbox that has its own certificate authority. AuthorityDir contains both files.
// AuthorityFile contains only the authority's certificate. BundleFile contains this certificate and
// all certificates that the machine trusts.
const (
	AuthorityDir  = "/run/e2bctl"
	AuthorityFile = AuthorityDir + "/authority.pem"
	BundleFile    = AuthorityDir + "/certificates.pem"
)

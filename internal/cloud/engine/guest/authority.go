package guest

// Where a sandbox finds the certificate authority that it has of its own, alone and among
// all that the machine trusts.
const (
	AuthorityDir  = "/run/e2bctl"
	AuthorityFile = AuthorityDir + "/authority.pem"
	BundleFile    = AuthorityDir + "/certificates.pem"
)

package cloud

import (
	"github.com/e2bctl/e2bctl/internal/cloud/secrets"
	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// keyOfSecrets returns the source of the key for sealing secrets. A key file is not in the
// state directory. Therefore a copy of that directory does not reveal the secrets.
func keyOfSecrets(o Options) secrets.Source {
	switch {
	case o.SecretsKey != "":
		return secrets.KeyOf(o.SecretsKey)
	case o.State == "":
		return secrets.NewKey()
	}
	return secrets.KeyIn(func() (string, error) { return privatedir.Make("secrets", privatedir.State) })
}

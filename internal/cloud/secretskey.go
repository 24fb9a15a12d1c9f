package cloud

import (
	"github.com/e2bctl/e2bctl/internal/cloud/secrets"
	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// keyOfSecrets returns the source of the key for secrets. Its file is not in the
// state directory, so that a copy of that directory is useless without it.
func keyOfSecrets(o Options) secrets.Source {
	switch {
	case o.SecretsKey != "":
		return secrets.KeyOf(o.SecretsKey)
	case o.State == "":
		return secrets.NewKey()
	}
	return secrets.KeyIn(func() (string, error) { return privatedir.Make("secrets", privatedir.State) })
}

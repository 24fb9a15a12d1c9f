package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// secretsIn returns the texts in a configuration that may be secrets: the variables and headers of
// all servers, and members with names such as "token". isSecret means that value is part of such a
// variable, header or member.
func secretsIn(value any, isSecret bool) (secrets []string) {
	switch value := value.(type) {
	case string:
		if isSecret && len(value) > 3 && !strings.Contains(value, "$") {
			return []string{value}
		}
	case []any:
		for _, element := range value {
			secrets = append(secrets, secretsIn(element, isSecret)...)
		}
	case map[string]any:
		for name, member := range value {
			secrets = append(secrets, secretsIn(member, isSecret || soundsSecret(name))...)
		}
	}
	return secrets
}

func soundsSecret(name string) bool {
	name = strings.ToLower(name)
	if name == "env" || strings.HasSuffix(name, "headers") {
		return true
	}
	return slices.ContainsFunc([]string{"key", "token", "secret", "password", "authorization"}, func(word string) bool {
		return strings.Contains(name, word)
	})
}

// hide returns a part of a configuration with stars in place of quoted secrets. It does not hide
// the secrets in shown.
func hide(text []byte, secrets, shown []string) []byte {
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, secret := range secrets {
		if slices.Contains(shown, secret) {
			continue
		}
		inJSON, _ := json.Marshal(secret) // a text has a form in JSON
		for _, quoted := range []string{string(inJSON), `"` + secret + `"`, `'` + secret + `'`} {
			text = bytes.ReplaceAll(text, []byte(quoted), []byte(`"***"`))
		}
	}
	return text
}

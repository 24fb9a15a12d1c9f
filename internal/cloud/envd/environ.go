//go:build linux

package envd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Environ returns the environment for a process of user, as sorted "key=value". The environment has
// PATH, HOME, USER and LOGNAME. The sandbox's variables override these four, and extra overrides
// all of them. Nothing is inherited from this process. An empty user means the default user.
// Environ returns an error if the user is unknown or a variable is not valid.
func (s *Server) Environ(user string, extra map[string]string) ([]string, error) {
	u, err := s.users.lookup(user)
	if err != nil {
		return nil, fmt.Errorf("envd: %w", err)
	}
	env, err := s.environ(u, extra)
	if err != nil {
		return nil, fmt.Errorf("envd: %w", err)
	}
	return env, nil
}

func (s *Server) environ(user *User, extra map[string]string) ([]string, error) {
	if err := checkEnvironment(extra); err != nil {
		return nil, err
	}
	env := map[string]string{"HOME": user.Home, "USER": user.Name, "LOGNAME": user.Name}
	if s.path != "" {
		env["PATH"] = s.path
	}
	maps.Copy(env, s.sandbox.Load().envs)
	maps.Copy(env, extra)
	list := make([]string, 0, len(env))
	for key, value := range env {
		list = append(list, key+"="+value)
	}
	slices.Sort(list)
	return list, nil
}

func checkEnvironment(env map[string]string) error {
	for key, value := range env {
		switch {
		case key == "" || strings.ContainsAny(key, "=\x00"):
			return fmt.Errorf("environment: %q cannot be the name of a variable", bounded(key))
		case strings.ContainsRune(value, 0):
			return fmt.Errorf("environment: the value of %s has a zero byte", bounded(key))
		}
	}
	return nil
}

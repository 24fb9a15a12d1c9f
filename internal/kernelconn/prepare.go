package kernelconn

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

const (
	// provePatience bounds the time between the two parts of a kernel's answer to an empty request.
	// proveAttempts bounds the number of times that this empty request is sent.
	provePatience = time.Second
	proveAttempts = 10
)

// prepare sets the environment variables of the call. If the kernel does not have the environment
// variables of the sandbox yet, prepare sets them, too. It may have to wait for other clients' code.
// It reports only this wait to the handler.
func (k *Kernel) prepare(ctx context.Context, envs map[string]string, h Handler) (err error) {
	var steps []string
	defer func() {
		if err != nil {
			k.primed.Store(false)
		}
	}()
	if err := k.prove(ctx); err != nil {
		return err
	}
	if !k.primed.Swap(true) {
		common := k.kernels.environment(ctx)
		switch {
		case len(common) == 0:
		case k.language == DefaultLanguage:
			steps = append(steps, completeEnvs(common))
		default:
			// The interpreter sets it with the first code that it runs, in a way that
			// depends on the language.
			if _, err := k.kernels.ExecuteOverHTTP(ctx, HTTPCall{Context: k.id}); err != nil {
				return fmt.Errorf("%w: set environment variables: %w", ErrNotSent, err)
			}
		}
	}
	if len(envs) > 0 {
		steps = append(steps, replaceEnvs(envs))
	}
	for _, code := range steps {
		e, err := k.once(ctx, silently(code), Handler{Message: func(m *jupyter.Message) error {
			if h.Message == nil || m.Header.MsgType != MessageQueued {
				return nil
			}
			return h.Message(m)
		}})
		if err == nil && e.reply.Status != "ok" {
			err = fmt.Errorf("%s: %s", e.reply.Name, clip.Text(e.reply.Value, 256))
		}
		if errors.Is(err, ErrNotSent) {
			return err
		}
		if err != nil {
			return fmt.Errorf("%w: set environment variables: %w", ErrNotSent, err)
		}
	}
	return nil
}

// prove checks that the kernel's messages on iopub arrive. When a kernel is restarted, the server
// opens the channels of a websocket at once. But until the kernel has learned of these channels, it
// drops its messages on iopub.
func (k *Kernel) prove(ctx context.Context) error {
	for attempt := 1; k.unproven; attempt++ {
		_, err := k.once(ctx, silently(""), Handler{patience: provePatience})
		switch {
		case err == nil:
			k.unproven = false
		case errors.Is(err, ErrLost) && attempt < proveAttempts && ctx.Err() == nil:
		default:
			return fmt.Errorf("%w: find out whether the kernel answers: %w", ErrNotSent, err)
		}
	}
	return nil
}

// Environment variables are sent to a Python kernel as data inside a silent execution that
// leaves no name behind.

// completeEnvs returns code that sets those environment variables that are missing. This is
// necessary because the kernel of a remote service does not have the sandbox's environment until a
// client sets it.
func completeEnvs(envs map[string]string) string {
	return withEnvs(envs, "for k, v in new.items(): os.environ.setdefault(k, v)")
}

// replaceEnvs returns code that sets environment variables and saves their previous values.
func replaceEnvs(envs map[string]string) string {
	return withEnvs(envs, "sys._e2bctl_env = {k: os.environ.get(k) for k in new}", "os.environ.update(new)")
}

// restoreEnvs is code that undoes the code of replaceEnvs.
var restoreEnvs = python("import os, sys",
	"for k, v in sys.__dict__.pop('_e2bctl_env', {}).items():",
	"    if v is None: os.environ.pop(k, None)",
	"    else: os.environ[k] = v")

func withEnvs(envs map[string]string, lines ...string) string {
	data, _ := json.Marshal(envs) // strings always encode
	load := "new = json.loads(base64.b64decode('" + base64.StdEncoding.EncodeToString(data) + "'))"
	return python(append([]string{"import base64, json, os, sys", load}, lines...)...)
}

// python returns Python code that runs lines in a separate namespace.
func python(lines ...string) string {
	text := base64.StdEncoding.EncodeToString([]byte(strings.Join(lines, "\n")))
	return "exec(__import__('base64').b64decode('" + text + "').decode(), {})"
}

// silently returns a request to run code without changing the kernel's history or execution count.
func silently(code string) request {
	return codeRequest(jupyter.ExecuteRequest{Code: code, Silent: true}, Handler{})
}

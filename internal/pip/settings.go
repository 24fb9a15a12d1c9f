package pip

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"gopkg.in/ini.v1"
)

// maxCertificates bounds the size of the certificate file that is sent with an installation. The
// bundle of a system has a quarter of a megabyte.
const maxCertificates = 4 << 20

// Settings are the settings of this machine's pip that determine where packages come from. With
// these settings, a sandbox that installs packages for this program should find the same packages as
// this machine. Settings contains no proxies, because the service decides how a sandbox reaches the
// network.
type Settings struct {
	Envs map[string]string // the variables PIP_*, except PIP_CERT
	// Certificates is the content of the certificate bundle that pip must trust. Nil means pip's own
	// bundle.
	Certificates []byte
}

// minMasked is the minimum length of a secret that is masked. Masking shorter texts would hide half
// of pip's output.
const minMasked = 4

// quiet contains variables with which pip asks no questions, does not look for a new version of
// itself, and does not refuse to change the system's Python. Changing this Python is harmless,
// because it belongs only to the sandbox.
var quiet = map[string]string{
	"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore",
	"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_PROGRESS_BAR": "off",
}

// settingNames maps the variables of pip's environment to their names in pip's
// configuration files.
var settingNames = map[string][]string{
	"PIP_INDEX_URL":       {"index-url"},
	"PIP_EXTRA_INDEX_URL": {"extra-index-url"},
	"PIP_TRUSTED_HOST":    {"trusted-host"},
	"PIP_DEFAULT_TIMEOUT": {"timeout", "default-timeout"},
	"PIP_RETRIES":         {"retries"},
	"PIP_CERT":            {"cert"},
}

// ReadSettings reads the environment and, for missing variables, pip's configuration files. If
// certificates is true, it also reads the certificate file that these settings name. If credentials
// is false, it leaves out addresses that contain credentials of this machine, because code in the
// sandbox can read the settings.
func ReadSettings(certificates, credentials bool) (Settings, error) {
	files, err := readFiles()
	if err != nil {
		return Settings{}, err
	}
	s := Settings{Envs: map[string]string{}}
	for variable := range settingNames {
		value, ok := os.LookupEnv(variable)
		if !ok {
			value = files[variable]
		}
		if !credentials {
			value = WithoutCredentials(value)
		}
		if value != "" {
			s.Envs[variable] = value
		}
	}
	path := s.Envs["PIP_CERT"]
	delete(s.Envs, "PIP_CERT")
	if path != "" && certificates {
		if s.Certificates, err = readCertificates(path); err != nil {
			return Settings{}, err
		}
	}
	return s, nil
}

// readFiles returns the settings in pip's configuration files, keyed by the names of the
// environment variables for the same settings. Later files take precedence over earlier files. In
// each file, the section install takes precedence over the section global.
func readFiles() (map[string]string, error) {
	found := map[string]string{}
	for _, path := range configurationFiles() {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // most machines have none of these files
		}
		file, err := ini.LoadSources(ini.LoadOptions{AllowPythonMultilineValues: true, IgnoreInlineComment: true, SkipUnrecognizableLines: true}, content)
		if err != nil {
			return nil, fmt.Errorf("read pip's settings in %s: %w", path, err)
		}
		for _, section := range []string{"global", "install"} {
			for variable, names := range settingNames {
				for _, name := range names {
					if key := file.Section(section).Key(name); key.String() != "" {
						found[variable] = strings.Join(strings.Fields(key.String()), " ")
					}
				}
			}
		}
	}
	return found, nil
}

// configurationFiles returns the paths of pip's configuration files on this system. Later files
// have precedence over earlier files.
func configurationFiles() []string {
	named, ok := os.LookupEnv("PIP_CONFIG_FILE")
	if ok && named == os.DevNull {
		return nil
	}
	var files []string
	home, _ := os.UserHomeDir() // without a home there is no file in it
	switch runtime.GOOS {
	case "windows":
		files = append(files, filepath.Join(os.Getenv("PROGRAMDATA"), "pip", "pip.ini"),
			filepath.Join(home, "pip", "pip.ini"), filepath.Join(os.Getenv("APPDATA"), "pip", "pip.ini"))
	default:
		files = append(files, "/etc/xdg/pip/pip.conf", "/etc/pip.conf", filepath.Join(home, ".pip", "pip.conf"))
		if config, err := os.UserConfigDir(); err == nil {
			files = append(files, filepath.Join(config, "pip", "pip.conf"))
		}
	}
	if ok && named != "" {
		files = append(files, named)
	}
	return files
}

// WithoutCredentials returns the value of a setting without the words that are addresses with a
// user.
func WithoutCredentials(value string) string {
	var kept []string
	for _, word := range strings.Fields(value) {
		address, err := url.Parse(word)
		if err != nil || address.User != nil {
			continue
		}
		kept = append(kept, word)
	}
	return strings.Join(kept, " ")
}

func readCertificates(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the certificates that pip's settings name: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxCertificates {
		return nil, fmt.Errorf("the certificates that pip's settings name, %s: not a file of at most %d bytes", path, maxCertificates)
	}
	content, err := os.ReadFile(path)
	if err == nil {
		err = CheckCertificates(content)
	}
	if err != nil {
		return nil, fmt.Errorf("read the certificates that pip's settings name, %s: %w", path, err)
	}
	return content, nil
}

// CheckCertificates returns an error if content is too large or contains no certificate. So a file
// that was named by mistake, such as a key, does not get into the sandbox.
func CheckCertificates(content []byte) error {
	switch {
	case len(content) > maxCertificates:
		return fmt.Errorf("certificates of more than %d bytes", maxCertificates)
	case !bytes.Contains(content, []byte("-----BEGIN CERTIFICATE-----")):
		return errors.New("it has no certificate in the form PEM")
	}
	return nil
}

// Masks returns a replacer that masks the users and passwords of the settings' addresses in the
// output of pip. It does not mask texts that are shorter than minMasked. pip itself masks most
// users and passwords.
func (s Settings) Masks() *strings.Replacer {
	var pairs []string
	for _, variable := range []string{"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_PROXY"} {
		for word := range strings.FieldsSeq(s.Envs[variable]) {
			address, err := url.Parse(word)
			if err != nil || address.User == nil {
				continue
			}
			written, _, _ := strings.Cut(word[strings.Index(word, "//")+2:], "@")
			password, _ := address.User.Password()
			for _, secret := range []string{written, address.User.String(), address.User.Username() + ":" + password, password} {
				if len(secret) >= minMasked {
					pairs = append(pairs, secret, "****")
				}
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

// Environment returns the environment variables for a run of pip with these settings. path is the
// path of the certificate bundle for this pip.
func (s Settings) Environment(path string) map[string]string {
	envs := maps.Clone(s.Envs)
	maps.Copy(envs, quiet)
	if s.Certificates != nil {
		envs["PIP_CERT"] = path
	}
	return envs
}

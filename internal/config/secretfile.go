package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// maxSecret bounds a file with a secret: a URL of a cluster is far shorter.
const maxSecret = 64 << 10

// ReadSecret reads the value of a key from its file.
func ReadSecret(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the path is the operator's own
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot be read: %w", err)
	case len(content) > maxSecret:
		return "", fmt.Errorf("names a file with more than %d bytes; write the value only", maxSecret)
	}
	secret := strings.TrimRight(string(content), "\r\n")
	if secret == "" {
		return "", errors.New("names an empty file; write the value into it")
	}
	return secret, nil
}

// ReadFile reads the value of a key from its file, and checks the value as a start does. Of a list the items stand
// behind each other with commas.
func ReadFile(key, path string) (string, error) {
	k, _ := Find(key + fileSuffix)
	content, err := ReadSecret(path)
	if err != nil {
		return "", err
	}
	v, err := k.read([]string{content})
	if err != nil {
		return "", err
	}
	if items, is := v.Interface().([]string); is {
		return strings.Join(items, ","), nil
	}
	return v.String(), nil
}

// PrivateFile is a file with a secret.
type PrivateFile struct {
	// Key is the key that names the file; empty for the configuration file itself.
	Key  string
	Path string
}

// What names the file for people.
func (f PrivateFile) What() string { return cmp.Or(f.Key, "the configuration, which holds a password") }

// notePrivate records a file that only its owner should read: a file that a key names, or the configuration file where
// it holds a secret.
func (l *loading) notePrivate(k Key, g given) {
	var file PrivateFile
	switch {
	case strings.HasSuffix(k.Name, fileSuffix) || strings.HasSuffix(k.Name, "tls_key"):
		file = PrivateFile{Key: k.Name, Path: g.values[0]}
	case k.Secret && g.file != "" && k.shown(g.values) != strings.Join(g.values, ","):
		file = PrivateFile{Path: g.file}
	}
	if file.Path != "" && !slices.Contains(l.config.PrivateFiles, file) {
		l.config.PrivateFiles = append(l.config.PrivateFiles, file)
	}
}

// checkTwice reports a key that is set beside the key of its file.
func (l *loading) checkTwice(name string, g given) {
	key, _ := strings.CutSuffix(name, fileSuffix)
	k, _ := Find(name)
	if other, both := l.given[key]; k.inFile && both && !slices.Equal(g.values, []string{""}) {
		l.problem(g, "", "is set beside "+key+" (from "+other.origin+"): remove one of them")
	}
}

// SecretFile is the file with the value of a key; empty where the value comes from elsewhere.
func (c *Config) SecretFile(key string) string {
	for _, file := range c.PrivateFiles {
		if file.Key == key+fileSuffix {
			return file.Path
		}
	}
	return ""
}

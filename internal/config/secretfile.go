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

// fileSuffix makes the name of a key whose value is a file from the name of a key.
const fileSuffix = "_file"

// maxSecret bounds a file with a secret: a URL of a cluster is far shorter.
const maxSecret = 64 << 10

// secretFile is the value of the twin of a key with a secret: the name of a file that holds the secret. The secret of
// the file becomes the value of the key, and appears in no error.
type secretFile struct{ of Key }

func (k Key) inFile() Key {
	return Key{
		Name: k.Name + fileSuffix,
		Meaning: "File with the value of " + k.Name + ", instead of " + k.Name + ". The file is read at the start; a " +
			"newline at its end does not count.",
		value: &secretFile{k},
	}
}

// withFiles puts after each key with a secret its twin.
func withFiles(keys []Key) (all []Key) {
	for _, k := range keys {
		all = append(all, k)
		if k.Secret {
			all = append(all, k.inFile())
		}
	}
	return all
}

func (v *secretFile) set(given []string) error {
	if given[0] == "" {
		return nil
	}
	secret, err := readSecret(given[0])
	if err != nil {
		return err
	}
	values := []string{secret}
	if v.of.List() {
		values = splitList(strings.ReplaceAll(secret, "\n", ","))
	}
	if err := v.of.value.set(values); err != nil {
		return fmt.Errorf("holds a value that %w", err)
	}
	return nil
}

func (v *secretFile) kind() string    { return "file" }
func (v *secretFile) allowed() string { return "" }

func readSecret(path string) (string, error) {
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
	key, isFile := strings.CutSuffix(name, fileSuffix)
	if other, both := l.given[key]; isFile && both && !slices.Equal(g.values, []string{""}) {
		l.problem(g, "", "is set beside "+key+" (from "+other.origin+"): remove one of them")
	}
}

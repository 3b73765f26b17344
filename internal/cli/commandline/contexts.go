package commandline

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/msghandler/msghandler/internal/ground/files"
)

// Installation is how to reach the coordinators of an installation. Paths may begin with ~/ or be relative to the file.
type Installation struct {
	Server  string `yaml:"server"`
	TLS     bool   `yaml:"tls,omitempty"`
	TLSCA   string `yaml:"tls_ca,omitempty"`
	TLSCert string `yaml:"tls_cert,omitempty"`
	TLSKey  string `yaml:"tls_key,omitempty"`
	TLSName string `yaml:"tls_name,omitempty"`
	// TokenFile names a file, so that no token stands here.
	TokenFile string `yaml:"token_file,omitempty"`
}

// Encrypted says whether calls go over TLS: each of its settings means it.
func (i Installation) Encrypted() bool {
	return i.TLS || i.TLSCA != "" || i.TLSCert != "" || i.TLSKey != "" || i.TLSName != ""
}

// Contexts are the installations of a person, by name.
type Contexts struct {
	// Current is the one that commands talk to which name no other.
	Current  string                  `yaml:"current,omitempty"`
	Contexts map[string]Installation `yaml:"contexts"`

	path string
}

// Names are the names of the installations, sorted.
func (c *Contexts) Names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// Path is the file.
func (c *Contexts) Path() string { return cmp.Or(c.path, "the file that MSGHANDLER_CONTEXTS names") }

// OpenContexts reads the contexts of this user; none where there is no file.
func (s *Session) OpenContexts() (*Contexts, error) {
	c := &Contexts{path: s.Variable("MSGHANDLER_CONTEXTS")}
	if c.path == "" {
		below := s.Variable("XDG_CONFIG_HOME")
		if home := s.Variable("HOME"); below == "" && home != "" {
			below = filepath.Join(home, ".config")
		}
		if !filepath.IsAbs(below) {
			return c, nil // a file below the working directory may be another user's, and would learn tokens
		}
		c.path = filepath.Join(below, "msghandler", "contexts.yaml")
	}
	content, err := os.ReadFile(c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return nil, err
	}
	if may := files.Exposed(c.path); strings.Contains(may, "write") {
		return nil, fmt.Errorf("every user of this machine may write %s, and so learn your tokens: chmod 600 it", c.path)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(c); err != nil {
		return nil, fmt.Errorf("%s: %w", c.path, err)
	}
	return c, nil
}

// Find returns an installation with whole paths.
func (c *Contexts) Find(s *Session, name string) (Installation, error) {
	found, is := c.Contexts[name]
	if !is {
		return found, fmt.Errorf("%s has no context %q; it has: %s", c.Path(), name,
			cmp.Or(strings.Join(c.Names(), ", "), "none"))
	}
	if found.Server == "" {
		return found, fmt.Errorf("%s: context %s has no server; write server: HOST:PORT", c.path, name)
	}
	for _, path := range []*string{&found.TLSCA, &found.TLSCert, &found.TLSKey, &found.TokenFile} {
		*path = c.whole(s, *path)
	}
	if may := files.Exposed(found.TokenFile); found.TokenFile != "" && may != "" {
		return found, fmt.Errorf("every user of this machine may %s %s, the token of context %s: chmod 600 it", may,
			found.TokenFile, name)
	}
	return found, nil
}

// whole is a path of the file.
func (c *Contexts) whole(s *Session, path string) string {
	if below, is := strings.CutPrefix(path, "~/"); is {
		return filepath.Join(s.Variable("HOME"), below)
	}
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(c.path), path)
}

// Use makes an installation the current one. Comments and order of the file stay.
func (c *Contexts) Use(name string) error {
	content, err := os.ReadFile(c.path)
	if err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return err
	}
	value := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
	fields := document.Content[0]
	at := slices.IndexFunc(fields.Content, func(n *yaml.Node) bool { return n.Value == "current" })
	if at < 0 {
		fields.Content = append([]*yaml.Node{{Kind: yaml.ScalarNode, Value: "current"}, value}, fields.Content...)
	} else {
		fields.Content[at+1] = value
	}
	var written bytes.Buffer
	encoder := yaml.NewEncoder(&written)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&document), encoder.Close()); err != nil {
		return err
	}
	return os.WriteFile(c.path, written.Bytes(), 0o600)
}

// context is the installation that a command talks to. named is false where a server, or a configuration, says which
// coordinator is meant.
func (f *CoordinatorFlags) context(s *Session, flags map[string]string) (of Installation, named bool, err error) {
	name := f.Context
	switch {
	case name != "" && f.Server != "":
		return of, false, errors.New("--context and --server: write one of them")
	case name == "" && cmp.Or(f.Server, s.Variable("MSGHANDLER_SERVER")) != "":
		return of, false, nil
	}
	name = cmp.Or(name, s.Variable("MSGHANDLER_CONTEXT"))
	configured := cmp.Or(s.config, s.Variable("MSGHANDLER_CONFIG"), s.Variable("MSGHANDLER_GRPC_ADDR")) != "" ||
		len(flags) > 0
	if name == "" && configured {
		return of, false, nil
	}
	all, err := s.OpenContexts()
	if err != nil {
		return of, false, err
	}
	if name = cmp.Or(name, all.Current); name == "" {
		return of, false, nil
	}
	of, err = all.Find(s, name)
	return of, err == nil, err
}

package artifacts

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"

	"github.com/msghandler/msghandler/internal/release/unit"
)

// shells are where each shell looks for completions: in an archive, in a deb and in an rpm.
var shells = []struct {
	name, archived string
	packaged       map[string]string
}{
	{"bash", "completions/msghandler.bash", map[string]string{
		"deb": "/usr/share/bash-completion/completions/msghandler",
		"rpm": "/usr/share/bash-completion/completions/msghandler",
	}},
	{"zsh", "completions/_msghandler", map[string]string{
		"deb": "/usr/share/zsh/vendor-completions/_msghandler",
		"rpm": "/usr/share/zsh/site-functions/_msghandler",
	}},
	{"fish", "completions/msghandler.fish", map[string]string{
		"deb": "/usr/share/fish/vendor_completions.d/msghandler.fish",
		"rpm": "/usr/share/fish/vendor_completions.d/msghandler.fish",
	}},
}

// documents writes what the program prints of itself, and the unit of the packages.
func (r *release) documents() error {
	for _, shell := range shells {
		script, err := r.run("completion", shell.name)
		if err != nil {
			return err
		}
		if err := r.document(shell.name, script); err != nil {
			return err
		}
	}
	page, err := r.run("man")
	if err != nil {
		return err
	}
	if err := r.document("msghandler.1", page); err != nil {
		return err
	}
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(page); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := r.document("msghandler.1.gz", zipped.Bytes()); err != nil {
		return err
	}
	text, err := os.ReadFile(r.source("deploy/systemd/msghandler.service"))
	if err != nil {
		return err
	}
	packaged, err := unit.Packaged(string(text))
	if err != nil {
		return err
	}
	return r.document("msghandler.service", []byte(packaged))
}

// document keeps a file for archives and packages.
func (r *release) document(name string, data []byte) error {
	path := r.documentPath(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

func (r *release) documentPath(name string) string { return filepath.Join(r.work, "documents", name) }

// source is a file of the checkout.
func (r *release) source(name string) string { return filepath.Join(r.root, filepath.FromSlash(name)) }

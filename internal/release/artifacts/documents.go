package artifacts

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// shells are where each shell looks for completions: in an archive, and in a package.
var shells = []struct{ name, archived, packaged string }{
	{"bash", "completions/msghandler.bash", "/usr/share/bash-completion/completions/msghandler"},
	{"zsh", "completions/_msghandler", "/usr/share/zsh/vendor-completions/_msghandler"},
	{"fish", "completions/msghandler.fish", "/usr/share/fish/vendor_completions.d/msghandler.fish"},
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
	unit, err := r.unit()
	if err != nil {
		return err
	}
	return r.document("msghandler.service", []byte(unit))
}

// unit is deploy/systemd/msghandler.service for a package, which brings the account and the program's directory.
func (r *release) unit() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "deploy", "systemd", "msghandler.service"))
	if err != nil {
		return "", err
	}
	_, unit, found := strings.Cut(string(text), "\n[Unit]\n")
	if !found {
		return "", fmt.Errorf("msghandler.service has no [Unit]")
	}
	const byHand = "\n# For other machines: "
	before, after, found := strings.Cut(unit, byHand)
	_, install, installed := strings.Cut(after, "\n[Install]\n")
	if !found || !installed {
		return "", fmt.Errorf("msghandler.service has no %q before [Install]", byHand)
	}
	const packaged = "# Of the package msghandler. To change settings: systemctl edit msghandler\n[Unit]\n"
	unit = packaged + before + "\n[Install]\n" + install
	for _, change := range []struct{ old, new string }{
		{"/usr/local/bin/", "/usr/bin/"},
		{"DynamicUser=yes\n", "User=msghandler\nGroup=msghandler\n"},
	} {
		if strings.Count(unit, change.old) != 1 {
			return "", fmt.Errorf("msghandler.service has %d times %q, want 1", strings.Count(unit, change.old), change.old)
		}
		unit = strings.Replace(unit, change.old, change.new, 1)
	}
	return unit, nil
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

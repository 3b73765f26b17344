// Package artifacts builds the files of a release: archives, packages, an image, checksums, bills of materials and
// notes. The same commit and the same Go version give the same bytes, in any directory.
package artifacts

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/release/changelog"
	"github.com/msghandler/msghandler/internal/release/modules"
)

// release is what all artifacts are made of.
type release struct {
	version string // such as v0.1.0
	commit  string
	at      time.Time // the commit's
	root    string    // the checkout
	out     string    // where artifacts go
	work    string    // removed in the end
}

// platform is what a program is built for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// Make builds the release of a version into a directory, which is emptied first. Progress goes to log.
func Make(checkout *modules.Checkout, version, out string, log io.Writer) error {
	r, err := begin(checkout, version, out)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"modules", func() error { return checkout.WriteProxy(version, r.proxy()) }},
		{"programs", func() error { return r.programs(log) }},
		{"pages and units", r.documents},
		{"archives", r.archives},
		{"deb and rpm", r.packages},
		{"image", r.image},
		{"bills of materials", r.materials},
		{"checksums", r.checksums},
	} {
		fmt.Fprintf(log, "building %s\n", step.what)
		if err := step.do(); err != nil {
			return fmt.Errorf("build %s: %w", step.what, err)
		}
	}
	fmt.Fprintf(log, "%s is in %s\n", version, out)
	return nil
}

// begin checks that a release can be made of the checkout, and writes the notes.
func begin(checkout *modules.Checkout, version, out string) (*release, error) {
	if err := checkout.Check(version); err != nil {
		return nil, err
	}
	commit, at, err := checkout.Commit()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(checkout.Dir(), "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	notes, err := changelog.Section(string(text), version)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(out, "RELEASE_NOTES.md"), []byte(notes), 0o644); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "msghandler-release-")
	return &release{version: version, commit: commit, at: at, root: checkout.Dir(), out: out, work: work}, err
}

// number is the version without the letter.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

func (r *release) proxy() string { return filepath.Join(r.work, "proxy") }

// checksums lists the SHA-256 of each artifact, as sha256sum does.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), entry.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// onlyLinux are the platforms of packages and images.
func onlyLinux() []platform {
	return slices.DeleteFunc(slices.Clone(platforms), func(p platform) bool { return p.os != "linux" })
}

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

// Options say what is released, and where the files go.
type Options struct {
	// Version is such as v0.1.0.
	Version string
	// Out is a directory, which is emptied first.
	Out string
	// Platforms are such as linux_amd64; none means all. One of them is this machine's.
	Platforms []string
	// Log gets the progress.
	Log io.Writer
}

// release is what all artifacts are made of.
type release struct {
	version   string
	commit    string
	at        time.Time // the commit's
	root      string    // the checkout
	out       string    // where artifacts go
	work      string    // removed in the end
	platforms []platform
	log       io.Writer
}

// platform is what a program is built for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

var all = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// Make builds a release.
func Make(checkout *modules.Checkout, o Options) error {
	r, err := begin(checkout, o)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"modules", func() error { return checkout.WriteProxy(r.version, r.proxy()) }},
		{"programs", r.programs},
		{"pages and units", r.documents},
		{"archives", r.archives},
		{"deb and rpm", r.packages},
		{"image", r.image},
		{"bills of materials", r.materials},
		{"checksums", r.checksums},
	} {
		fmt.Fprintf(r.log, "building %s\n", step.what)
		if err := step.do(); err != nil {
			return fmt.Errorf("build %s: %w", step.what, err)
		}
	}
	fmt.Fprintf(r.log, "%s is in %s\n", r.version, r.out)
	return nil
}

// begin checks that a release can be made of the checkout, and writes the notes.
func begin(checkout *modules.Checkout, o Options) (*release, error) {
	chosen, err := platformsOf(o.Platforms)
	if err != nil {
		return nil, err
	}
	if err := checkout.Check(o.Version); err != nil {
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
	notes, err := changelog.Section(string(text), o.Version)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(o.Out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(o.Out, "RELEASE_NOTES.md"), []byte(notes), 0o644); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "msghandler-release-")
	return &release{
		version: o.Version, commit: commit, at: at, root: checkout.Dir(), out: o.Out, work: work,
		platforms: chosen, log: o.Log,
	}, err
}

// platformsOf finds platforms by their names.
func platformsOf(names []string) ([]platform, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []platform
	for _, name := range names {
		i := slices.IndexFunc(all, func(p platform) bool { return p.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("no platform is %q: the platforms are %v", name, all)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
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

// onLinux are the platforms of packages and images.
func (r *release) onLinux() []platform {
	return slices.DeleteFunc(slices.Clone(r.platforms), func(p platform) bool { return p.os != "linux" })
}

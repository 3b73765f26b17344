package modules

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

// WriteProxy writes all modules of the workspace at a version below a directory that can be a GOPROXY. The zip files
// are those that the go command makes of a tag, with the files of the checkout as they are now.
func (c *Checkout) WriteProxy(version, dir string) error {
	if err := c.Check(version); err != nil {
		return err
	}
	files, err := os.MkdirTemp("", "msghandler-modules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(files)
	if err := c.copyTo(files); err != nil {
		return err
	}
	committed, err := git(c.dir, nil, "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(committed), 10, 64)
	if err != nil {
		return err
	}
	rooms, err := c.Modules()
	if err != nil {
		return err
	}
	for _, room := range rooms {
		if err := writeModule(files, room, dir, version, time.Unix(seconds, 0).UTC()); err != nil {
			return err
		}
	}
	return nil
}

// Modules are the directories of the released modules: those of go.work.
func (c *Checkout) Modules() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		return nil, err
	}
	var rooms []string
	for _, use := range work.Use {
		// A module in test/ has no users.
		if room := filepath.ToSlash(filepath.Clean(use.Path)); !strings.HasPrefix(room, "test/") {
			rooms = append(rooms, room)
		}
	}
	return rooms, nil
}

// Tags are the names of the tags that make the modules importable at a version.
func Tags(rooms []string, version string) []string {
	tags := make([]string, 0, len(rooms))
	for _, room := range rooms {
		tags = append(tags, strings.TrimPrefix(room+"/"+version, "./"))
	}
	return tags
}

// writeModule writes the four files of a module that a GOPROXY answers with.
func writeModule(files, room, dir, version string, at time.Time) error {
	mod := module.Version{Path: strings.TrimSuffix(Root+"/"+room, "/."), Version: version}
	escaped, err := module.EscapePath(mod.Path)
	if err != nil {
		return err
	}
	versions := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		return err
	}
	from := filepath.Join(files, filepath.FromSlash(room))
	if err := addLicense(files, from); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(versions, version+".zip"), func(w io.Writer) error {
		return zip.CreateFromDir(w, mod, from)
	}); err != nil {
		return err
	}
	gomod, err := os.ReadFile(filepath.Join(from, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, at})
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(versions, version+".mod"), bytesTo(gomod)); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(versions, version+".info"), bytesTo(info)); err != nil {
		return err
	}
	list, err := versionList(versions)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(versions, "list"), bytesTo([]byte(list)))
}

// versionList lists the versions that a directory has a zip file of.
func versionList(dir string) (string, error) {
	zips, err := filepath.Glob(filepath.Join(dir, "v*.zip"))
	if err != nil {
		return "", err
	}
	for i, name := range zips {
		zips[i] = strings.TrimSuffix(filepath.Base(name), ".zip")
	}
	slices.SortFunc(zips, semver.Compare)
	return strings.Join(zips, "\n") + "\n", nil
}

// writeFile writes a file whole or not at all: another go command may read the directory meanwhile.
func writeFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // when it has not been renamed
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func bytesTo(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// copyTo copies the files of the checkout, with those that are not committed and without those that git ignores. The
// index of the checkout does not change.
func (c *Checkout) copyTo(dir string) error {
	index := []string{"GIT_INDEX_FILE=" + dir + ".index"}
	defer func() { _ = os.Remove(dir + ".index") }()
	for _, args := range [][]string{
		{"read-tree", "HEAD"}, {"add", "--all"}, {"checkout-index", "--all", "--prefix=" + dir + "/"},
	} {
		if _, err := git(c.dir, index, args...); err != nil {
			return err
		}
	}
	return nil
}

// addLicense gives a module without a license that of the main module, as the go command does.
func addLicense(files, module string) error {
	license := filepath.Join(module, "LICENSE")
	if _, err := os.Stat(license); err == nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(files, "LICENSE"))
	if err != nil {
		return err
	}
	return os.WriteFile(license, text, 0o644)
}

func git(dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s in %s: %w: %s", strings.Join(args, " "), dir, err, strings.TrimSpace(failed.String()))
	}
	return string(out), nil
}

// Package modules keeps the versions that the Go modules of this repository require of each other, and writes the
// modules of a checkout as a GOPROXY.
package modules

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// Root is the path of the main module. The others are below it.
const Root = "github.com/msghandler/msghandler"

// requirement is a module of ours with a version, in a go.mod file or in go.work.
var requirement = regexp.MustCompile(`(\b` + regexp.QuoteMeta(Root) + `(?:/[a-z0-9/]+)?) (v[0-9]\S*)`)

// Checkout is a working tree of this repository.
type Checkout struct {
	dir string
}

// In opens the checkout that contains a directory.
func In(dir string) (*Checkout, error) {
	top, err := git(dir, nil, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	return &Checkout{dir: strings.TrimSpace(top)}, nil
}

// Dir is the top directory.
func (c *Checkout) Dir() string { return c.dir }

// Check refuses a version that a go.mod file or go.work disagrees with: its tag would require modules of another
// version.
func (c *Checkout) Check(version string) error {
	if err := valid(version); err != nil {
		return err
	}
	files, err := c.files()
	if err != nil {
		return err
	}
	var wrong []string
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil {
			return err
		}
		for _, found := range requirement.FindAllSubmatch(text, -1) {
			if line := fmt.Sprintf("%s names %s %s", name, found[1], found[2]); string(found[2]) != version {
				wrong = append(wrong, line)
			}
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	wrong = slices.Compact(wrong)
	return fmt.Errorf("the go.mod files are not of %s: %s (%d lines in all). To change them: make version VERSION=%s",
		version, wrong[0], len(wrong), version)
}

// Version is the version that the go.mod files require, by the go.mod of the main module.
func (c *Checkout) Version() (string, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, "go.mod"))
	if err != nil {
		return "", err
	}
	found := requirement.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("go.mod in %s requires no module below %s", c.dir, Root)
	}
	return string(found[2]), nil
}

// Set writes a version into all go.mod files and go.work.
func (c *Checkout) Set(version string) error {
	if err := valid(version); err != nil {
		return err
	}
	files, err := c.files()
	if err != nil {
		return err
	}
	for _, name := range files {
		path := filepath.Join(c.dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, requirement.ReplaceAll(text, []byte("$1 "+version)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files are go.work and the go.mod files of the checkout, without those that git ignores.
func (c *Checkout) files() ([]string, error) {
	list, err := git(c.dir, nil,
		"ls-files", "--cached", "--others", "--exclude-standard", "--", "go.work", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Fields(list), func(name string) bool {
		_, err := os.Stat(filepath.Join(c.dir, name))
		return os.IsNotExist(err) // removed, and not yet committed
	}), nil
}

// valid refuses what cannot be a tag of these modules.
func valid(version string) error {
	switch {
	case !semver.IsValid(version) || semver.Canonical(version) != version:
		return fmt.Errorf("VERSION is %q, and must be like v0.1.0 or v0.2.0-rc.1", version)
	case semver.Major(version) > "v1":
		return fmt.Errorf("VERSION is %s, and from v2 on the path of each module ends with its major version: "+
			"change the paths first", version)
	}
	return nil
}

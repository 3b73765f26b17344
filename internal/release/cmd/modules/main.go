// Command modules sets the version of the Go modules of this repository, and writes the modules as a GOPROXY.
package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/release/changelog"
	"github.com/msghandler/msghandler/internal/release/modules"
)

type commands struct {
	Set   setCommand   `cmd:"" help:"Write a version into all go.mod files, go.work and CHANGELOG.md."`
	Proxy proxyCommand `cmd:"" help:"Write the modules of this checkout as a GOPROXY."`
	Tags  tagsCommand  `cmd:"" help:"Print the names of the tags that make the modules importable."`
	Notes notesCommand `cmd:"" help:"Print what CHANGELOG.md says of a version."`
}

type setCommand struct {
	Version string `arg:"" help:"Version, such as v0.2.0."`
}

// Run sets the version, and gives it what is unreleased in the changelog.
func (c *setCommand) Run(tree *modules.Checkout) error {
	if err := tree.Set(c.Version); err != nil {
		return err
	}
	path := filepath.Join(tree.Dir(), "CHANGELOG.md")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	released, err := changelog.Release(string(text), c.Version, time.Now().UTC())
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(released), 0o644); err != nil {
		return err
	}
	fmt.Printf("go.mod files, go.work and CHANGELOG.md are of %s: look at git diff, and commit\n", c.Version)
	return nil
}

type proxyCommand struct {
	Dir     string `arg:"" help:"Directory to write."`
	Version string `arg:"" optional:"" help:"Version, such as v0.2.0. None: that of the go.mod files."`
}

// Run writes the modules, and says how to use them.
func (c *proxyCommand) Run(tree *modules.Checkout) error {
	current, err := tree.Version()
	if err != nil {
		return err
	}
	version := cmp.Or(c.Version, current)
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return err
	}
	if err := tree.WriteProxy(version, dir); err != nil {
		return err
	}
	fmt.Printf(usage, version, dir, modules.Root, dir, modules.Root, version)
	return nil
}

// The go command never reads a version twice, so a changed checkout needs a new module cache.
const usage = `wrote the modules at %s to %s. In a module of your own:

  export GOMODCACHE=$(mktemp -d) GONOSUMDB=%s
  export GOPROXY=file://%s,$(go env GOPROXY)
  go get %s/producer@%s
`

type tagsCommand struct {
	Version string `arg:"" help:"Version, such as v0.2.0."`
}

// Run prints the tags, when the go.mod files agree.
func (c *tagsCommand) Run(tree *modules.Checkout) error {
	if err := tree.Check(c.Version); err != nil {
		return err
	}
	rooms, err := tree.Modules()
	if err != nil {
		return err
	}
	for _, tag := range modules.Tags(rooms, c.Version) {
		fmt.Println(tag)
	}
	return nil
}

type notesCommand struct {
	Version string `arg:"" help:"Version, such as v0.2.0."`
}

// Run prints the section of the version.
func (c *notesCommand) Run(tree *modules.Checkout) error {
	text, err := os.ReadFile(filepath.Join(tree.Dir(), "CHANGELOG.md"))
	if err != nil {
		return err
	}
	notes, err := changelog.Section(string(text), c.Version)
	fmt.Print(notes)
	return err
}

func main() {
	var c commands
	ctx := kong.Parse(&c, kong.Description("Versions of the Go modules of this repository."), kong.UsageOnError())
	tree, err := modules.In(".")
	ctx.FatalIfErrorf(err)
	ctx.FatalIfErrorf(ctx.Run(tree))
}

// Command release builds the files of a release into a directory.
package main

import (
	"os"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/release/artifacts"
	"github.com/msghandler/msghandler/internal/release/modules"
)

type command struct {
	Version string `arg:"" help:"Version, such as v0.2.0."`
	Dir     string `arg:"" help:"Directory to write; it is emptied first." type:"path"`

	Platforms []string `name:"platform" help:"Only these platforms, such as linux_amd64. Default: all." placeholder:"OS_ARCH"`
}

// Run builds the release.
func (c *command) Run(tree *modules.Checkout) error {
	return artifacts.Make(tree, artifacts.Options{
		Version: c.Version, Out: c.Dir, Platforms: c.Platforms, Log: os.Stderr,
	})
}

func main() {
	var c command
	ctx := kong.Parse(&c, kong.Description("Build archives, packages and the image of a release."))
	tree, err := modules.In(".")
	ctx.FatalIfErrorf(err)
	ctx.FatalIfErrorf(ctx.Run(tree))
}

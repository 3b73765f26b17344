// Command artifacts makes the image and the bills of materials of a release, of programs that scripts/release.sh has
// built.
package main

import (
	"path/filepath"
	"time"

	"github.com/alecthomas/kong"
)

// release is what is released, and where.
type release struct {
	Version string    `arg:"" help:"Version without the letter, such as 0.2.0."`
	Commit  string    `arg:"" help:"Hash of the commit."`
	At      time.Time `arg:"" help:"Time of the commit."`
	// Programs has a directory for each platform, such as linux_amd64.
	Programs string `arg:"" help:"Directory with the programs of each platform." type:"existingdir"`
	Out      string `arg:"" help:"Directory to write." type:"existingdir"`
}

// names are the released programs.
var names = []string{"msghandler", "msghandler-bench", "msghandler-dev"}

// platforms are those that programs were built for, such as linux_amd64, of a system or of all ("*").
func (r *release) platforms(system string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(r.Programs, system+"_*"))
	for i, dir := range found {
		found[i] = filepath.Base(dir)
	}
	return found, err
}

func (r *release) program(platform, name string) string {
	return filepath.Join(r.Programs, platform, name)
}

// Run makes the artifacts.
func (r *release) Run() error {
	r.At = r.At.UTC()
	if err := r.materials(); err != nil {
		return err
	}
	return r.image()
}

func main() {
	var r release
	ctx := kong.Parse(&r, kong.Description("Make the image and the bills of materials of a release."))
	ctx.FatalIfErrorf(ctx.Run())
}

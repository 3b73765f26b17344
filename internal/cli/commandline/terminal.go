package commandline

import (
	"os"

	"github.com/mattn/go-isatty"
)

// IsTerminal says whether a person is at the other end of an input or output.
func IsTerminal(stream any) bool {
	file, is := stream.(*os.File)
	return is && isatty.IsTerminal(file.Fd())
}

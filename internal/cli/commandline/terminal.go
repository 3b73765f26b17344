package commandline

import (
	"os"
	"strconv"

	"github.com/mattn/go-isatty"
)

// IsTerminal says whether a person is at the other end of an input or output.
func IsTerminal(stream any) bool {
	file, is := stream.(*os.File)
	return is && isatty.IsTerminal(file.Fd())
}

// Width is the number of columns of standard output: of the terminal, or of COLUMNS; 0 means any number.
func (s *Session) Width() int {
	if file, is := s.Out.(*os.File); is {
		if width := terminalWidth(file); width > 0 {
			return width
		}
	}
	width, err := strconv.Atoi(s.Variable("COLUMNS"))
	if err != nil || width < 0 {
		return 0
	}
	return width
}

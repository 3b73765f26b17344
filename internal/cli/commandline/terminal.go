package commandline

import (
	"bytes"
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// IsTerminal says whether a person is at the other end of an input or output.
func IsTerminal(stream any) bool {
	file, is := stream.(*os.File)
	return is && isatty.IsTerminal(file.Fd())
}

// Screen is the terminal of standard output; the zero Screen where standard output is none.
func (s *Session) Screen() Screen {
	if s.screen != nil {
		return *s.screen
	}
	if !IsTerminal(s.Out) {
		return Screen{}
	}
	width, height := terminalSize(s.Out.(*os.File))
	return Screen{Width: width, Height: height, Color: s.showsColors()}
}

// Drawn is the session with another standard output, whose text is fitted to the terminal of this session.
func (s *Session) Drawn(out io.Writer) *Session {
	drawn, screen := *s, s.Screen()
	drawn.Out, drawn.screen = out, &screen
	return &drawn
}

// Unpaged is the session without a pager, for output that goes on: a pager would halt the output until its reader
// quits.
func (s *Session) Unpaged() *Session {
	unpaged := *s
	unpaged.unpaged = true
	return &unpaged
}

// PrintTable prints tables, as Screen.Table lays them out.
func (s *Session) PrintTable(rows [][]string) error { return s.print(s.Screen().Table(rows)) }

// print writes a text, through a pager where the text is longer than the terminal.
func (s *Session) print(text []byte) error {
	height := s.Screen().Height
	long := height > 0 && bytes.Count(text, []byte("\n")) >= height
	if long && !s.unpaged && IsTerminal(s.Out) && s.page(text) {
		return nil
	}
	_, err := s.Out.Write(text)
	return err
}

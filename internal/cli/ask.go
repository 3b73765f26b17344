package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// isTerminal says whether there is a person at the other end of an input or output.
func isTerminal(stream any) bool {
	file, is := stream.(*os.File)
	return is && isatty.IsTerminal(file.Fd())
}

// canAsk refuses, as a wrong use, to go on where nobody can be asked.
func (s *session) canAsk() error {
	if isTerminal(s.In) {
		return nil
	}
	return usageError{errors.New("there is no terminal to ask on; add --yes when you are sure, or --dry-run to count")}
}

// agree asks a question on the terminal. Every answer but yes is an error, which says that nothing was changed.
func (s *session) agree(question string) error {
	fmt.Fprintf(s.Err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(s.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	if answer != "y" && answer != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

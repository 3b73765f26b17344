package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// canAsk refuses, as wrong usage, to go on without a terminal for the question.
func canAsk(s *commandline.Session) error {
	if commandline.IsTerminal(s.In) {
		return nil
	}
	return commandline.UsageError{
		Err: errors.New("there is no terminal to ask on; add --yes when you are sure, or --dry-run to count"),
	}
}

// askToChange counts messages, asks whether to change them, and returns the agreed count. No more may be changed: other
// messages may match by the time of the answer. Without messages there is no question. The words of first precede the
// count where more match.
func askToChange(
	s *commandline.Session, count func() (n int64, more bool, err error), verb, first, messages string,
) (agreed int64, err error) {
	if err := canAsk(s); err != nil {
		return 0, err
	}
	n, more, err := count()
	if err != nil || n == 0 {
		return 0, err
	}
	if !more {
		first = ""
	}
	return n, agree(s, fmt.Sprintf("%s %s%d %s?", verb, first, n, messages))
}

// agree asks a question on the terminal. Every answer except yes is an error.
func agree(s *commandline.Session, question string) error {
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

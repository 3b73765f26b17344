package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
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

// question is the text of a question before a change.
type question struct {
	verb string
	// first precedes the count where more match.
	first string
	// noun is what is counted, in the singular, and rest what follows.
	noun, rest string
	// loses asks for the number itself: the businesses of the messages may have committed.
	loses bool
}

// askToChange counts what would be changed, asks whether to change it, and returns the agreed count. No more may be
// changed: more may match by the time of the answer. Where nothing matches there is no question.
func askToChange(
	s *commandline.Session, q question, count func() (n int64, more bool, err error),
) (agreed int64, err error) {
	if err := canAsk(s); err != nil {
		return 0, err
	}
	n, more, err := count()
	if err != nil || n == 0 {
		return 0, err
	}
	if !more {
		q.first = ""
	}
	if q.loses {
		return n, agreeToLose(s, q.verb+" "+q.first+amount(n, q.noun)+q.rest+"?", n)
	}
	return n, agree(s, q.verb+" "+q.first+amount(n, q.noun)+q.rest+"?")
}

// amount is a number of things whose plural ends in s.
func amount(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// agreeToLose asks a question on the terminal whose answer is the number of messages.
func agreeToLose(s *commandline.Session, question string, n int64) error {
	fmt.Fprintf(s.Err, "%s\n%s\nType %d to go on: ", question, mayLose, n)
	answer, err := bufio.NewReader(s.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(answer) != strconv.FormatInt(n, 10) {
		return errors.New("nothing was changed")
	}
	return nil
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

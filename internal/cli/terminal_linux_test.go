package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// terminal is a terminal without a person: the program reads from the second file what the test writes to the first.
func terminal(t *testing.T) (keyboard, program *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = keyboard.Close() })
	var number, locked int32
	for request, value := range map[uintptr]*int32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &locked} {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, keyboard.Fd(), request, uintptr(unsafe.Pointer(value)))
		if errno != 0 {
			t.Fatal(errno)
		}
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = program.Close() })
	return keyboard, program
}

// answered is a terminal on which the answer has been typed already.
func answered(t *testing.T, answer string) (program *os.File) {
	t.Helper()
	keyboard, program := terminal(t)
	if _, err := keyboard.WriteString(answer + "\n"); err != nil {
		t.Fatal(err)
	}
	return program
}

func TestFilteredChangeAsksOnTerminal(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		status int
		out    string
		asked  string
	}{
		"y": {
			0, "discarded 2; more match, run it again or raise --limit\n",
			"would discard STATE_DEAD orders 2  error route; discard STATE_DEAD orders 2  older AGE error route",
		},
		"no": {1, "", "would discard STATE_DEAD orders 2  error route"},
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			c := startCoordinator(t)
			program := answered(t, answer)
			var out, errs bytes.Buffer
			status := cli.Run(context.Background(), commandline.Process{
				Args: []string{"discard", "--state=dead", "--producer=orders", "--error=route", "--limit=2", "--server=" + c.addr},
				In:   program, Out: &out, Err: &errs,
			})
			ran{status, out.String(), errs.String()}.want(t, want.status, want.out,
				`Discard the first 2 dead messages of orders whose last error contains "route"? [y/N] `)
			if asked := anyAge.ReplaceAllString(c.asked(), "older AGE"); asked != want.asked {
				t.Errorf("asked %s", asked)
			}
		})
	}
}

func TestFilteredReplayAsksOnTerminal(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		status     int
		out, asked string
	}{
		"y":  {0, "replayed 1 message; 1 cannot be replayed\n", "would replay 1000 of orders; replay 1 of orders"},
		"no": {1, "", "would replay 1000 of orders"},
	} {
		c := startCoordinator(t)
		program := answered(t, answer)
		var out, errs bytes.Buffer
		status := cli.Run(t.Context(), commandline.Process{
			Args: []string{"replay", "--producer=orders", "--until=2100-01-01", "--server=" + c.addr},
			In:   program, Out: &out, Err: &errs,
		})
		ran{status, out.String(), errs.String()}.want(t, want.status, want.out, "Replay 1 finished message? [y/N] ")
		if asked := c.asked(); asked != want.asked {
			t.Errorf("asked %s", asked)
		}
	}
}

// anyAge replaces the age of messages since the count, which differs from run to run.
var anyAge = regexp.MustCompile(`older [0-9.a-zµ]+`)

// Messages that are stored or come of age after the count must not take the place of counted messages: no more are
// changed than were counted, and all are older than the count.
func TestChangeKeepsTheAgreedCount(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]struct {
		question string
		out      string
		asked    string
	}{
		"dead": {
			"Discard 3 dead messages? [y/N] ", "discarded 3; more match",
			"would discard STATE_DEAD  1000 ; discard STATE_DEAD  3  older AGE",
		},
		"abandoned": {"", "discarded 0\n", "would discard STATE_ABANDONED  1000 "},
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			c := startCoordinator(t)
			keyboard, program := terminal(t)
			var out, errs servers.Log
			ended := make(chan int, 1)
			go func() {
				ended <- cli.Run(t.Context(), commandline.Process{
					Args: []string{"discard", "--state=" + state, "--limit=0", "--server=" + c.addr},
					In:   program, Out: &out, Err: &errs,
				})
			}()
			if want.question != "" {
				servers.Eventually(t, 20*time.Second, "the question", func() bool {
					return strings.Contains(errs.String(), want.question)
				})
				c.add(msghandlerv1.State_STATE_DEAD, "orders", "1004")
			}
			if _, err := keyboard.WriteString("y\n"); err != nil {
				t.Fatal(err)
			}
			ran{<-ended, out.String(), errs.String()}.want(t, 0, want.out, want.question)
			if asked := anyAge.ReplaceAllString(c.asked(), "older AGE"); asked != want.asked {
				t.Errorf("asked %s", asked)
			}
		})
	}
}

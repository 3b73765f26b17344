package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// screen is a terminal of a size, and what programs have written there.
func screen(t *testing.T, width, height uint16) (keyboard, program *os.File, shown *servers.Log) {
	t.Helper()
	keyboard, program = terminal(t)
	size := [4]uint16{height, width}
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, program.Fd(), syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		t.Fatal(errno)
	}
	shown = &servers.Log{}
	go func() {
		part := make([]byte, 4096)
		for {
			n, err := keyboard.Read(part)
			if err != nil {
				return
			}
			_, _ = shown.Write(bytes.ReplaceAll(part[:n], []byte("\r\n"), []byte("\n")))
		}
	}()
	return keyboard, program, shown
}

func TestListsFitTheTerminal(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	_, program, shown := screen(t, 60, 24)
	status := cli.Run(t.Context(), commandline.Process{
		Args: []string{"list", "--state=dead", "--server=" + c.addr}, Env: []string{"TERM=xterm"}, Out: program, Err: program,
	})
	const want = "orders/1001   \x1b[31mdead\x1b[0m    -     orders     312 NO_ROUTE\n"
	servers.Eventually(t, 20*time.Second, "a table of 60 columns in colours", func() bool {
		return strings.Contains(shown.String(), want)
	})
	if status != 0 {
		t.Errorf("the command ended with %d", status)
	}
}

func TestLongListsGoThroughThePager(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	for i := range 30 {
		c.add(msghandlerv1.State_STATE_DEAD, "orders", fmt.Sprint(2001+i))
	}
	file := filepath.Join(t.TempDir(), "paged")
	for pager, paged := range map[string]bool{
		"tee " + file + " | head -1": true, "cat": false, "": false, " ": false, "no-such": false,
		"/":     false, // the shell cannot run a directory
		"false": false, "less --no-such-flag": false,
	} {
		for output, long := range map[string]bool{"": true, "--limit=3": false} {
			_ = os.Remove(file)
			_, program, shown := screen(t, 100, 24)
			args := []string{"list", "--state=dead", "--server=" + c.addr}
			if output != "" {
				args = append(args, output)
			}
			cli.Run(t.Context(), commandline.Process{
				Args: args, Env: append(os.Environ(), "PAGER="+pager), Out: program, Err: &servers.Log{},
			})
			content, _ := os.ReadFile(file) // no file: no pager
			if got := strings.Contains(string(content), "orders/2030"); got != (paged && long) {
				t.Errorf("PAGER=%q, %s: the pager got\n%s", pager, output, content)
			}
			want := "orders/2030"
			if paged || !long {
				want = "MESSAGE"
			}
			servers.Eventually(t, 20*time.Second, "the list with PAGER="+pager, func() bool {
				return strings.Contains(shown.String(), want)
			})
		}
	}
}

// A pager would halt the watch until its reader quits.
func TestWatchedDocumentsNeedNoPager(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	file := filepath.Join(t.TempDir(), "paged")
	_, program, shown := screen(t, 80, 4)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, commandline.Process{
			Args: []string{"list", "--watch", "--every=100ms", "--output=json", "--server=" + c.addr},
			Env:  append(os.Environ(), "PAGER=tee "+file), Out: program, Err: program,
		})
	}()
	servers.Eventually(t, 20*time.Second, "two documents", func() bool {
		return strings.Count(shown.String(), "\n}\n{\n") > 1
	})
	stop()
	if status := <-ended; status != 0 {
		t.Errorf("the watch ended with %d", status)
	}
	if content, err := os.ReadFile(file); err == nil {
		t.Errorf("the pager got\n%s", content)
	}
}

func TestTopFillsTerminalOfUnknownSize(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	keyboard, program, shown := screen(t, 0, 0)
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(context.Background(), commandline.Process{
			Args: []string{"top", "--every=1h", "--server=" + c.addr}, In: program, Out: program, Err: program,
		})
	}()
	servers.Eventually(t, 20*time.Second, "all lines", func() bool {
		return strings.Contains(shown.String(), "IN TROUBLE") && strings.Contains(shown.String(), "leaves out")
	})
	_, err := keyboard.WriteString("q")
	must.Succeed(t, err)
	if status := <-ended; status != 0 {
		t.Errorf("top ended with %d", status)
	}
}

func TestTopScrollsAndSortsByKeys(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	keyboard, program, shown := screen(t, 80, 10)
	modes := func() unix.Termios {
		t.Helper()
		modes, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
		must.Succeed(t, err)
		return *modes
	}
	before := modes()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(context.Background(), commandline.Process{
			Args: []string{"top", "--every=1h", "--server=" + c.addr}, In: program, Out: program, Err: program,
		})
	}()
	shows := func(texts ...string) {
		t.Helper()
		servers.Eventually(t, 20*time.Second, "the screen shows "+strings.Join(texts, ", "), func() bool {
			last := shown.String()
			last = last[max(0, strings.LastIndex(last, "\x1b[Hmsghandler")):]
			for _, text := range texts {
				if !strings.Contains(last, text) {
					return false
				}
			}
			return true
		})
	}
	press := func(key string) {
		t.Helper()
		_, err := keyboard.WriteString(key)
		must.Succeed(t, err)
	}
	shows("q quit", "(count)", "lines 1-6 of", "STATE")
	press("\x1b[B")
	shows("lines 2-7 of")
	if modes().Cc[unix.VSUSP] != 0 {
		t.Error("Ctrl-Z stops top, and leaves its screen to the shell")
	}
	press("n")
	shows("(name)", "lines 2-7 of")
	press("G")
	shows("no exchange", "leaves out")
	press("g")
	shows("lines 1-6 of")
	press("q")
	if status := <-ended; status != 0 {
		t.Errorf("top ended with %d", status)
	}
	servers.Eventually(t, 20*time.Second, "the first screen is back", func() bool {
		return strings.HasSuffix(shown.String(), "\x1b[?1049l")
	})
	if after := modes(); after != before {
		t.Errorf("top leaves the terminal with %+v, and found %+v", after, before)
	}
}

func TestWatchedTableStaysOnTheScreen(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"2000":                     "13 more lines have no room",
		strings.Repeat("long", 60): "more lines have no room", // its row takes several rows of the screen
	} {
		c := startCoordinator(t)
		c.add(msghandlerv1.State_STATE_DEAD, "orders", id)
		for i := range 30 {
			c.add(msghandlerv1.State_STATE_DEAD, "orders", fmt.Sprint(2001+i))
		}
		_, program, shown := screen(t, 80, 12)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			ended <- cli.Run(ctx, commandline.Process{
				Args: []string{"list", "--state=dead", "--watch", "--every=100ms", "--limit=20", "--server=" + c.addr},
				In:   program, Out: program, Err: program,
			})
		}()
		servers.Eventually(t, 20*time.Second, "two screens", func() bool {
			return strings.Count(shown.String(), "\x1b[H") > 2
		})
		stop()
		if status := <-ended; status != 0 {
			t.Errorf("the watch ended with %d", status)
		}
		page, rows := strings.Split(shown.String(), "\x1b[H")[1], 0
		for line := range strings.Lines(page) {
			if text, ends := strings.CutSuffix(line, "\x1b[K\n"); ends {
				rows += commandline.Screen{Width: 80}.Rows(text)
			}
		}
		if rows > 11 || id == "2000" && rows != 11 || !strings.Contains(page, want) {
			t.Errorf("a screen has %d rows:\n%s", rows, page)
		}
	}
}

func TestEveryListCanBeWatched(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	for _, command := range [][]string{{"list"}, {"list", "--group"}, {"stats"}, {"problems"}} {
		args := slices.Concat(command, []string{"--watch", "--every=100ms", "--output=json", "--server=" + c.addr})
		out, stop := watch(t, args...)
		servers.Eventually(t, 20*time.Second, "two documents of "+command[0], func() bool {
			return strings.Count(out.String(), "\n}\n{\n") > 1
		})
		if status := stop(); status != 0 {
			t.Errorf("%v ended with %d:\n%s", command, status, out)
		}
	}
	server := "--server=" + c.addr
	run(nil, "list", "--watch", "--output=name", server).want(t, 2, "", "--watch and --output=name")
	for _, command := range []string{"list", "problems", "history", "stats", "top"} {
		args := []string{command, "--every=1ms", server}
		if command != "top" {
			args = append(args, "--watch")
		}
		run(nil, args...).want(t, 2, "", "--every=1ms: at least 100ms")
	}
}

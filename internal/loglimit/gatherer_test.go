package loglimit_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/loglimit"
)

// gather runs work with a Gatherer and returns the lines, in the order in which they were written.
func gather(t *testing.T, work func(*loglimit.Gatherer)) (lines []string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		var log bytes.Buffer
		plain := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}
		g := loglimit.NewGatherer(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: plain})))
		work(g)
		g.Flush()
		lines = strings.Split(strings.TrimSpace(log.String()), "\n")
	})
	return lines
}

func failure(producer string, n int) loglimit.Failure {
	id := fmt.Sprintf("id-%d", n)
	return loglimit.Failure{
		Level: slog.LevelWarn, Text: "refused", Producer: producer, Exchange: "orders", MessageID: producer + "/" + id,
		Cause: fmt.Sprintf("%s: attempt %d failed", id, n), More: []slog.Attr{slog.Int("attempts", n)},
	}
}

func wantLines(t *testing.T, got, want []string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestFailuresOfOneCauseShareLine(t *testing.T) {
	t.Parallel()
	lines := gather(t, func(g *loglimit.Gatherer) {
		for n := range 1000 {
			g.Add(failure("shop", n))
		}
		g.Add(failure("stock", 1))
		time.Sleep(loglimit.Interval)
		synctest.Wait()
		g.Add(failure("shop", 7))
		time.Sleep(2 * loglimit.Interval)
		synctest.Wait()
		g.Add(failure("shop", 8))
	})
	line := func(count int, producer string, n int) string {
		return fmt.Sprintf(`msg=refused count=%d producer=%s exchange=orders message_id=%s/id-%d `+
			`cause="id-%d: attempt %d failed" attempts=%d`, count, producer, producer, n, n, n, n)
	}
	wantLines(t, lines, []string{
		line(1, "shop", 0), line(1, "stock", 1), line(999, "shop", 999), line(1, "shop", 7), line(1, "shop", 8),
	})
}

func TestUnfinishedIntervalIsFlushed(t *testing.T) {
	t.Parallel()
	lines := gather(t, func(g *loglimit.Gatherer) {
		for range 3 {
			g.Add(loglimit.Failure{Text: "refused"})
		}
	})
	wantLines(t, lines, []string{"msg=refused count=1", "msg=refused count=2"})
}

func TestCausesAreBounded(t *testing.T) {
	t.Parallel()
	lines := gather(t, func(g *loglimit.Gatherer) {
		for n := range 1500 {
			g.Add(loglimit.Failure{Text: "refused", Cause: strings.Repeat("x", n+1)})
		}
	})
	if len(lines) != 1002 || !strings.Contains(lines[1001], "count=499 ") {
		t.Errorf("%d lines, the last is %.40s", len(lines), lines[len(lines)-1])
	}
}

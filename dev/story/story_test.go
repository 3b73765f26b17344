package story

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
)

func TestOnlyDeadlineBlamesTheBooks(t *testing.T) {
	t.Parallel()
	late, stop := context.WithDeadline(t.Context(), time.Now())
	defer stop()
	if err := gaveUp(late, progress{}); !errors.Is(err, errUnbalanced) {
		t.Errorf("after a deadline: %v", err)
	}
	interrupted, stop := context.WithTimeout(t.Context(), patience)
	stop()
	if err := gaveUp(interrupted, progress{}); errors.Is(err, errUnbalanced) || err.Error() != "interrupted" {
		t.Errorf("after an interrupt: %v", err)
	}
}

func TestWrongUsageStartsNothing(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"--database=x":                        "--database: a database is sqlite:FILE, postgres://",
		"--database=postgres:":                "--database: a database is",
		"--database=mariadb://u:geheim@":      "--database: a database is",
		"--database=mariadb://u:ge%zzheim@h/": "--database: a database is",
		"--orders=99":                         "at least 100",
	} {
		var out, errs strings.Builder
		program := commandline.Program{Name: "demo", Grammar: func() any { return &Command{} }}
		status := program.Run(t.Context(), commandline.Process{Args: strings.Fields(typed), Out: &out, Err: &errs})
		told := errs.String()
		if status != 2 || out.Len() > 0 || !strings.Contains(told, want) || strings.Contains(told, "geheim") {
			t.Errorf("%s: status %d, output %q, error %q; want %q and no password", typed, status, &out, told, want)
		}
	}
}

package demo

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestOnlyADeadlineBlamesTheBooks(t *testing.T) {
	t.Parallel()
	late, stop := context.WithDeadline(t.Context(), time.Now())
	defer stop()
	if err := gaveUp(late, progress{}); !errors.Is(err, ErrUnbalanced) {
		t.Errorf("after a deadline: %v", err)
	}
	interrupted, stop := context.WithTimeout(t.Context(), patience)
	stop()
	if err := gaveUp(interrupted, progress{}); errors.Is(err, ErrUnbalanced) || err.Error() != "interrupted" {
		t.Errorf("after an interrupt: %v", err)
	}
}

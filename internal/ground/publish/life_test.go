package publish

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A broker without room gets the next message after a pause, whose end changes nothing else.
func TestAwaitEndsWithTheFullPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLife[*int](Config{Logger: slog.New(slog.DiscardHandler)}, RoutesConfig{})
		l.Connected(t.Context(), "broker", new(int))
		l.NoRoom(errors.New("full"), "")
		time.Sleep(fullAfter)
		l.NoRoom(errors.New("full"), "")
		if err := l.Ready(); !errors.Is(err, ErrBlocked) {
			t.Errorf("without room: %v", err)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := l.Await(ctx)
		if took := time.Since(began); err != nil || took < fullPause || took > fullPause+awaitEvery {
			t.Errorf("Await took %v, and returned %v", took, err)
		}
	})
}

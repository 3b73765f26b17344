package halfmsg_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

func TestLogValuesAreTextInJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		value any
		want  string
	}{
		{halfmsg.Name{Producer: "orders", ID: "1"}, `"of":"orders/1"`},
		{halfmsg.Dead, `"of":"dead"`},
		{halfmsg.EventDiscard, `"of":"` + halfmsg.EventDiscard.String() + `"`},
	} {
		var line bytes.Buffer
		slog.New(slog.NewJSONHandler(&line, nil)).Info("moved", "of", tc.value)
		if !strings.Contains(line.String(), tc.want) {
			t.Errorf("want %s in %s", tc.want, line.String())
		}
	}
}

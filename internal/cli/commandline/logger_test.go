package commandline_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/config"
)

func TestLoggerIsAsConfigured(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"json": `"msg":"seen"`, "text": "msg=seen"} {
		var b bytes.Buffer
		logger := commandline.NewLogger(&b, config.Log{Level: "warn", Format: format})
		logger.Info("not seen")
		logger.Warn("seen")
		if out := b.String(); !strings.Contains(out, want) || strings.Contains(out, "not seen") {
			t.Errorf("%s: %s", format, out)
		}
	}
}

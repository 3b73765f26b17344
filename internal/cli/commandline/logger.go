package commandline

import (
	"io"
	"log/slog"

	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/config"
)

// NewLogger returns a logger of the configured level and format.
func NewLogger(w io.Writer, settings config.Log) *slog.Logger {
	var level slog.Level
	// The configuration has checked the name.
	_ = level.UnmarshalText([]byte(settings.Level))
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: audit.LevelName}
	if settings.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

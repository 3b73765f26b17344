package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
)

type serveCommand struct {
	Set map[string]string `help:"Set any key, those of single producers too: --set producers.orders.target=orders:9000" mapsep:"none" placeholder:"KEY=VALUE"`

	kong.Plugins
	flags *configFlags
}

func newServeCommand() serveCommand {
	flags := newConfigFlags()
	return serveCommand{flags: flags, Plugins: kong.Plugins{flags.fields.Interface()}}
}

// Run serves until the context ends, SIGTERM or SIGINT comes, its terminal closes, or a part fails.
func (c *serveCommand) Run(ctx context.Context, s *session) error {
	flags := c.flags.given()
	maps.Copy(flags, c.Set)
	settings, err := s.load(flags)
	if err != nil {
		return usageError{err}
	}
	logger := newLogger(s.Err, settings.Log)
	defer letGarbagePileUp()()
	return untilSignalled(ctx, logger, terminalClosed(), func(ctx context.Context) error {
		a, err := app.New(ctx, settings, app.Deps{Version: readBuild().Version, Logger: logger})
		var wrong app.SettingsError
		switch {
		case errors.As(err, &wrong):
			return usageError{err}
		case err != nil:
			return err
		}
		return a.Run(ctx)
	})
}

func newLogger(w io.Writer, settings config.Log) *slog.Logger {
	var level slog.Level
	// The configuration has checked the name.
	_ = level.UnmarshalText([]byte(settings.Level))
	options := &slog.HandlerOptions{Level: level}
	if settings.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

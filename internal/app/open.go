package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/internal/app/tracing"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/console"
	"github.com/msghandler/msghandler/internal/ground/files"
)

// New opens the listeners and builds the console. New fails when an address cannot be listened on, and with a
// SettingsError when the target of a producer is not allowed, or a certificate cannot be read. Run opens the other
// parts; an App without Run must be stopped.
func New(ctx context.Context, settings config.Config, deps Deps) (*App, error) {
	a := &App{
		settings: settings, bounds: deps.Bounds.withDefaults(),
		process: process{cmp.Or(deps.Version, "(devel)"), newInstance(), time.Now(), deps.Network, deps.OpenDatabase},
		metrics: console.NewMetrics(),
	}
	a.begin()
	a.logger = cmp.Or(deps.Logger, slog.Default()).With("coordinator", a.process.instance)
	a.peers = a.newPeers()
	a.attendance = a.newAttendance()
	a.openReloader(deps)
	a.warnExposed()
	var err error
	if a.callbacks, err = a.newCallbacks(); err != nil {
		return nil, err
	}
	if a.doors.apiTLS, err = a.newCredentials(); err != nil {
		return nil, err
	}
	if a.doors.consoleTLS, err = a.newConsoleTLS(); err != nil {
		return nil, err
	}
	if a.callers.authenticator, err = a.newAuthenticator(); err != nil {
		return nil, err
	}
	visitors, notice, err := a.newLogin()
	if err != nil {
		return nil, err
	}
	a.divideConnections()
	if a.doors.console, err = a.listen(ctx, "http.addr", settings.HTTP.Addr); err != nil {
		return nil, err
	}
	if a.doors.api, err = a.listen(ctx, "grpc.addr", settings.GRPC.Addr); err != nil {
		return nil, errors.Join(err, a.doors.console.Close())
	}
	a.openAudit()
	a.openConsole(visitors, notice)
	a.openEvents()
	if err := a.openTracing(ctx); err != nil {
		return nil, errors.Join(
			err, a.doors.console.Close(), a.doors.api.Close(), a.events.Close(ctx), a.audit.Close(ctx))
	}
	a.closeWith(closer{name: "callbacks", close: func(context.Context) error {
		a.callbacks.Close()
		return nil
	}})
	a.closeWith(closer{name: "grpc listener", close: func(context.Context) error { return closeListener(a.doors.api) }})
	return a, nil
}

// Run opens the parts and serves until the context ends, Stop is called or a part fails. Then Run closes the parts, and
// returns the error of the failed part. While Redis is unreachable at the start, Run waits. Run can be called once.
func (a *App) Run(ctx context.Context) error {
	if !a.claim() {
		return errors.New("this coordinator has been run already")
	}
	defer close(a.ended)
	defer context.AfterFunc(ctx, a.end)()

	err := a.open(a.life)
	if err == nil {
		a.logger.Info("serving", "grpc_address", a.GRPCAddr(), "http_address", a.HTTPAddr(), "version", a.process.version)
		select {
		case <-a.life.Done():
		case err = <-a.failed:
			a.peers.Break()
		}
	} else if a.life.Err() != nil {
		// Stopped while opening: no failure.
		err = nil
	}
	if stopErr := a.close(context.Background()); stopErr != nil {
		a.logger.Warn("some parts did not end in time: the next lease holder takes their messages", "cause", stopErr)
	}
	return err
}

// open opens the parts in the order of need.
func (a *App) open(ctx context.Context) error {
	a.watchConfiguration()
	limited := a.limited(httpListener, a.doors.console, a.doors.share.Console, a.doors.share.ConsolePerAddress)
	if a.doors.consoleTLS != nil {
		limited = tls.NewListener(limited, a.doors.consoleTLS)
	}
	a.serve("console", func() error { return a.console.Serve(limited) })
	if err := a.watchCertificates(); err != nil {
		return err
	}
	store, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	urls := a.settings.AMQP.URLs
	opened, err := a.openBrokers()
	if err != nil {
		return err
	}
	if err := a.openOutboxes(opened); err != nil {
		return err
	}
	if err := a.watchBacklog(store, urls, opened); err != nil {
		return err
	}
	if err := a.openLetters(urls); err != nil {
		return err
	}
	if err := a.watchUndecided(store); err != nil {
		return err
	}
	a.openAttendance(store)
	return a.openPipeline(store, opened)
}

// openTracing begins to export spans if the environment asks for spans.
func (a *App) openTracing(ctx context.Context) (err error) {
	if !tracing.Wanted() {
		return nil
	}
	if a.tracer, err = tracing.Open(ctx, a.process.version, a.process.instance, a.logger); err != nil {
		return err
	}
	a.closeWith(closer{name: "tracing", close: a.tracer.Close})
	return nil
}

// warnExposed warns of files with secrets that every user of the machine may read or write. The source of the tokens
// warns of its own file.
func (a *App) warnExposed() {
	for _, file := range a.settings.PrivateFiles {
		if may := files.Exposed(file.Path); may != "" && file.Key != "access.token_file" {
			a.logger.Warn("every user of this machine may "+may+" a file with secrets; chmod o-rw the file",
				"holds", file.What(), "path", file.Path)
		}
	}
}

package app

import (
	"context"
	"fmt"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/app/callbacks"
	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loop"
	"github.com/msghandler/msghandler/internal/rabbitmq"
	"github.com/msghandler/msghandler/internal/sendloop"
	"github.com/msghandler/msghandler/internal/server"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// How much of the grace the parts that wait for producers and clients may take of what is left.
const (
	serverShare  = 0.4
	confirmShare = 0.5
)

// sides is the way of a message through this process: the server hands what is submitted to the confirmer, and that what
// is committed to the sender. They need each other, so the calls go through this struct; nothing moves before all of it
// is set.
type sides struct {
	// noted is told of moves, for those whom people are to be told of.
	noted       func(moves []halfmsg.Moved)
	sender      *sendloop.Sender
	confirmer   *confirmloop.Confirmer
	server      *server.Server
	sendLoop    *loop.Loop
	confirmLoop *loop.Loop
	deleteLoop  *loop.Loop
}

// openSides opens the send side, the confirm side and the server, in this order: each is there before anything is handed
// to it, and still there when the one before it closes.
func (a *App) openSides(store *redisstore.Store, publisher *rabbitmq.Publisher) error {
	s := &sides{noted: a.noteMoves}
	a.openSender(s, store, publisher)
	a.openConfirmer(s, store)
	if err := a.openLoops(s); err != nil {
		return err
	}
	if err := a.openServer(s, store); err != nil {
		return err
	}
	s.server.SetServing(true)
	health, err := a.newLoop("health", healthSchedule, func(ctx context.Context) (bool, error) {
		up := answers(ctx, store)
		s.server.SetServing(up)
		a.noteStore(up)
		return false, nil
	})
	if err != nil {
		return err
	}
	s.sendLoop.Start()
	s.confirmLoop.Start()
	s.deleteLoop.Start()
	health.Start()
	limited := a.limited(grpcListener, a.grpcDoor, a.share.API, a.share.APIPerAddress)
	a.serve("grpc", func() error { return s.server.Serve(limited) })
	a.checks.set(checkAPI, func(context.Context) error { return nil })
	return nil
}

// healthSchedule is when the coordinator looks whether it can still serve. Producers that watch its health go to another
// then; without that each of their calls would wait for a Redis that is silent.
const healthSchedule = "@every 500ms"

// silenceTolerated is how long Redis may take to answer a PING: longer than it forks or syncs its disk as a rule.
const silenceTolerated = 2 * time.Second

func answers(ctx context.Context, store *redisstore.Store) bool {
	ctx, cancel := context.WithTimeout(ctx, silenceTolerated)
	defer cancel()
	return store.Ping(ctx) == nil
}

// newCallbacks builds the client that calls producers. It connects to nobody yet.
func (a *App) newCallbacks() (*callback.Client, error) {
	if len(a.settings.Callbacks.Allow) == 0 {
		a.logger.Warn("callbacks.allow is empty: no callback target is allowed, so no half message will be accepted; " +
			"set it to where your producers serve, such as *.orders.svc:9000")
	}
	if plain := a.settings.TokensInPlain(); len(plain) > 0 {
		a.logger.Warn("tokens are shown to producers without encryption: who listens on the way can learn them, and roll back "+
			"transactions that are running; set callbacks.tls, unless the network itself is private or encrypted", "keys", plain)
	}
	config, source, err := callbacks.Config(&a.settings, a.logger)
	if err != nil {
		return nil, SettingsError{err}
	}
	a.expires("callbacks.tls_cert", source)
	client, err := callback.New(config)
	if err != nil {
		return nil, SettingsError{fmt.Errorf("callbacks.allow, callbacks.moved and producers.NAME.target: %w", err)}
	}
	return client, nil
}

func (a *App) openSender(s *sides, store *redisstore.Store, publisher *rabbitmq.Publisher) {
	settings := a.settings.Send
	c := sendloop.Config{
		Store:              store,
		Publisher:          a.traced(publisher),
		Watcher:            s,
		Wake:               func() { s.sendLoop.Wake() },
		Backoff:            settings.Backoff,
		DeadLetterExchange: settings.DeadLetterExchange,
		Batch:              settings.Batch,
		Parallel:           settings.Parallel,
		Queue:              settings.Queue,
		Lease:              settings.Lease,
		Margin:             settings.ConfirmTimeout + time.Second,
		Logger:             a.logger,
		Metrics:            a.metrics,
	}
	if a.settings.DeleteBusiness.When == config.AfterAck {
		c.Forget = func(claims []halfmsg.Claim, until time.Time) { s.confirmer.OfferAcknowledged(claims, until) }
	} else {
		c.AfterAck = func(claims []halfmsg.Claim) { s.confirmer.DeleteMarkers(markersLeft(claims)) }
	}
	s.sender = sendloop.New(c)
	a.metrics.Queue("send", s.sender.Waiting)
	a.closeWith(closer{name: "send side", close: s.sender.Close})
}

// markersLeft are the messages whose markers may still be there although they were to be deleted before publishing: an
// owner may have died between the verdict and the deletion. One that held on to its lease left a copy to be counted; one
// whose message had to wait for its delay left no trace of it. Deleting a marker twice does no harm.
func markersLeft(acked []halfmsg.Claim) (left []halfmsg.Claim) {
	for i := range acked {
		if acked[i].Copies > 0 || acked[i].Delay > 0 {
			left = append(left, acked[i])
		}
	}
	return left
}

func (a *App) openConfirmer(s *sides, store *redisstore.Store) {
	settings := a.settings.Confirm
	c := confirmloop.Config{
		Store:            store,
		Callbacks:        a.callbacks,
		Send:             s.sender.Offer,
		Watcher:          s,
		Wake:             func() { s.confirmLoop.Wake() },
		Backoff:          settings.Backoff,
		Attempts:         settings.Attempts,
		Batch:            settings.Batch,
		Lease:            settings.Lease,
		SendLease:        a.settings.Send.Lease,
		Margin:           settings.Timeout + time.Second,
		CallsPerProducer: a.settings.Callbacks.Parallel,
		QueuePerProducer: a.settings.Callbacks.Queue,
		DeleteTimeout:    settings.Timeout,
		Logger:           a.logger,
		Metrics:          heard{a.metrics, a.events},
	}
	if a.tracer != nil {
		c.Trace = a.tracer.Confirm
	}
	if a.settings.DeleteBusiness.When == config.AfterAck {
		c.DeleteWhen = confirmloop.AfterAck
	}
	s.confirmer = confirmloop.New(c)
	a.metrics.Queue("confirm", s.confirmer.Waiting)
	a.metrics.Queue("markers", s.confirmer.Markers)
	a.closeWith(closer{name: "confirm side", share: confirmShare, close: s.confirmer.Close})
}

// leftSchedule is when messages are looked for that wait for the end of their markers although those are deleted before
// publishing: left from a time when the configuration said otherwise, or of a coordinator that it says otherwise.
const leftSchedule = "@every 30s"

// openLoops builds the loops of both sides; they are started when all is there.
func (a *App) openLoops(s *sides) (err error) {
	if s.sendLoop, err = a.newLoop("send", a.settings.Send.Schedule, s.sender.Pass); err != nil {
		return err
	}
	if s.confirmLoop, err = a.newLoop("confirm", a.settings.Confirm.Schedule, s.confirmer.Pass); err != nil {
		return err
	}
	schedule := leftSchedule
	if a.settings.DeleteBusiness.When == config.AfterAck {
		schedule = a.settings.Confirm.Schedule
	}
	if s.deleteLoop, err = a.newLoop("delete", schedule, s.confirmer.PassAcknowledged); err != nil {
		return err
	}
	a.checks.set(checkSend, healthy(s.sendLoop))
	a.checks.set(checkConfirm, healthy(s.confirmLoop))
	return nil
}

// openServer builds the door for producers and operators. It is the last to be opened, and so the first to be closed.
func (a *App) openServer(s *sides, store *redisstore.Store) error {
	var err error
	s.server, err = server.New(server.Config{
		Intake:       store,
		Inspector:    store,
		Targets:      a.callbacks,
		Submitted:    s.confirmer.Offer,
		Trusted:      a.settings.Trusted,
		Wake:         s.wake,
		ConfirmAfter: a.settings.Confirm.After,
		ConfirmLease: a.settings.Confirm.Lease,
		SendLease:    a.settings.Send.Lease,
		Limits: server.Limits{
			Body: int(a.settings.Limits.Body), Waiting: a.settings.Limits.Waiting, Bytes: int(a.settings.Limits.Requests),
		},
		ConnectionAge:  a.settings.GRPC.ConnectionAge,
		ConnectionIdle: a.settings.GRPC.ConnectionIdle,
		Reflection:     a.settings.GRPC.Reflection,
		Credentials:    a.credentials,
		Permissions:    a.permissions(),
		Refused:        a.noteRefused,
		RefusedUnread:  a.metrics.RequestRefused,
		Findings:       a.allFindings,
		Interceptors:   a.interceptors(),
		Logger:         a.logger,
	})
	if err != nil {
		return err
	}
	a.server.Store(s.server)
	for name, waiting := range s.server.Queues() {
		a.metrics.Queue(name, waiting)
	}
	a.closeWith(closer{name: "grpc", share: serverShare, close: s.server.Stop})
	return nil
}

func (a *App) interceptors() []grpc.UnaryServerInterceptor {
	if a.tracer == nil {
		return []grpc.UnaryServerInterceptor{a.countCalls}
	}
	return []grpc.UnaryServerInterceptor{a.countCalls, a.tracer.Serve}
}

// traced is a publisher that makes spans, where they are wanted.
func (a *App) traced(publisher halfmsg.Publisher) halfmsg.Publisher {
	if a.tracer == nil {
		return publisher
	}
	return a.tracer.Publisher(publisher)
}

// countCalls is a server interceptor.
func (a *App) countCalls(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	began := time.Now()
	response, err := handler(ctx, request)
	method := path.Base(info.FullMethod)
	a.metrics.Called(method, status.Code(err).String(), time.Since(began))
	if batch, ok := response.(interface {
		GetOutcomes() []*msghandlerv1.Outcome
	}); ok && err == nil {
		for _, outcome := range batch.GetOutcomes() {
			a.metrics.Answered(method, codes.Code(outcome.GetCode()).String()) //nolint:gosec // codes are small
		}
	}
	return response, err
}

// Moved implements halfmsg.Watcher: those who wait for a message at the server are told, and people where they must act.
func (s *sides) Moved(moves []halfmsg.Moved) {
	s.server.Moved(moves)
	s.noted(moves)
}

// wake makes the loop of a state pass at once; the server calls it after a retry.
func (s *sides) wake(state halfmsg.State) {
	switch state {
	case halfmsg.Pending, halfmsg.Abandoned:
		s.confirmLoop.Wake()
	case halfmsg.Sendable, halfmsg.Dead:
		s.sendLoop.Wake()
	case halfmsg.Acknowledged:
		s.deleteLoop.Wake()
	}
}

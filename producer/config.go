package producer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/producer/marker"
)

// Config names the producer and its partners. Name, Coordinator and Markers must be given.
type Config struct {
	// Name is the producer's name: 1 to 100 bytes of [A-Za-z0-9._-]. All replicas of a service share it.
	Name string
	// Coordinator is where msghandler listens: host:port, several of them separated by commas, or a gRPC target such as
	// dns:///msghandler:9090. Calls go to all addresses in turn.
	Coordinator string
	// CallbackTarget is the address at which the coordinator reaches this producer's gRPC server, host:port or
	// dns:///host:port, or the URL at which its HTTPHandler is mounted. The coordinator's callbacks.allow must name the
	// address. Empty: the producer attends, that is, it opens streams to the coordinators over which it is asked, and
	// serves no port. A target of the producer in the coordinator's configuration (producers.NAME.target) is used before
	// the streams.
	CallbackTarget string
	// Coordinators says who may call Confirm and DeleteBusiness. It must be given with a CallbackTarget: empty lets no
	// caller in.
	Coordinators Coordinators
	// Markers keeps a note of each committed business: package marker/sql in the business's own transactions. Markers in
	// Redis and in memory promise less, as the package comment says; those in memory are for one replica only.
	Markers marker.Store
	// Resolve looks at the business data of a message without a marker. Return Committed when the data are there, and
	// RolledBack only when the data can never come any more. An error, also one of the context, means that nothing
	// could be found out: the coordinator asks again, and the message loses no attempt. Unknown costs an attempt. final
	// is set on the last question before the message becomes ABANDONED. Resolve is called concurrently, at most
	// ResolveParallel calls at once, and must return when its context ends. Nil: such a message is Unknown.
	Resolve func(ctx context.Context, id string, final bool) (marker.Verdict, error)
	// OnUndeliverable is called for each message whose business committed but which the coordinator will not deliver,
	// after Send has returned nil. The error wraps ErrContradicted if the message was rolled back, and ErrNotFound if
	// the coordinator knows no such message: an operator discarded the message, or Redis lost it. Undo the business, or
	// send the message under a new id. OnUndeliverable may be called more than once for a message, and concurrently;
	// the function must return soon. With or without this function, each such message is an ERROR line of the Logger.
	OnUndeliverable func(id string, err error)

	// ConfirmAfter is how long after the half message the coordinator asks when no Submit arrives. 0: its own default.
	ConfirmAfter time.Duration
	// SendTimeout bounds how long a half message is tried for, where the caller's context lasts longer. Default: 30 s,
	// which outlasts the replacement of a coordinator and a failover of Redis. A service that answers people gives less.
	SendTimeout time.Duration
	// SubmitTimeout bounds the retries of a Submit in the background, and of a Rollback that Send did not wait for.
	// Later the coordinator's confirm loop takes over. Default: 10 s.
	SubmitTimeout time.Duration
	// RollbackTimeout bounds how long Send tries to roll the message of a failed business back. Then Send returns, and
	// the Rollback continues in the background. Default: 3 s.
	RollbackTimeout time.Duration
	// MarkerTimeout bounds each call of Markers in Send. Default: 2 s.
	MarkerTimeout time.Duration
	// Background is how many Submits and late markers may be under way in the background. Further Submits are left to
	// the coordinator's confirm loop. Default: 10,000.
	Background int

	// TLS is how the coordinator is talked to with TLS; its certificate must be for the host of its address, or for
	// TLS.ServerName. Nil: nothing is encrypted.
	TLS *tls.Config
	// Token is the bearer token that the coordinator knows this producer by, and TokenFile a file with the token in its
	// first line, which is read again when the file changes. At most one of them is set. The token is shown on every
	// call, and over TLS only; a coordinator on the loopback needs no TLS.
	Token     string
	TokenFile string
	// DialOptions are appended to the SDK's own options for dialing the coordinator. Credentials among them replace
	// TLS.
	DialOptions []grpc.DialOption
	// Logger gets the events of the background. Default: slog.Default().
	Logger *slog.Logger
}

// ResolveParallel is how many calls of Config.Resolve one Confirm makes at once: enough to answer a full batch in
// time, few enough to leave a database pool to the business.
const ResolveParallel = 8

func (c Config) withDefaults() (Config, error) {
	missing := func(field, remedy string) error {
		return fmt.Errorf("producer.Config: %s is missing; %s", field, remedy)
	}
	var errs []error
	if c.Name == "" {
		errs = append(errs, missing("Name", "give the service's name, such as orders"))
	}
	if c.Coordinator == "" {
		errs = append(errs, missing("Coordinator", "give the address of msghandler, such as 127.0.0.1:9090"))
	} else if err := address.CheckCoordinators(c.Coordinator); err != nil {
		// The error quotes nothing of the address, which may hold a password.
		errs = append(errs, fmt.Errorf("producer.Config: Coordinator %w", err))
	}
	if c.Markers == nil {
		errs = append(errs, missing("Markers", "give a marker store, such as that of package marker/sql"))
	}
	if c.CallbackTarget != "" && c.Coordinators.empty() {
		errs = append(errs, errors.New(textClosed))
	}
	for field, d := range map[string]*time.Duration{
		"SendTimeout": &c.SendTimeout, "SubmitTimeout": &c.SubmitTimeout, "RollbackTimeout": &c.RollbackTimeout,
		"MarkerTimeout": &c.MarkerTimeout, "ConfirmAfter": &c.ConfirmAfter,
	} {
		if *d < 0 {
			errs = append(errs, fmt.Errorf("producer.Config: %s is negative: %v", field, *d))
		}
	}
	c.SendTimeout = cmp.Or(c.SendTimeout, 30*time.Second)
	c.SubmitTimeout = cmp.Or(c.SubmitTimeout, 10*time.Second)
	c.RollbackTimeout = cmp.Or(c.RollbackTimeout, 3*time.Second)
	c.MarkerTimeout = cmp.Or(c.MarkerTimeout, 2*time.Second)
	c.Background = cmp.Or(c.Background, 10_000)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c, errors.Join(errs...)
}

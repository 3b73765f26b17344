package server

import (
	"cmp"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

func (l Limits) WithCalls(n int) Limits { l.calls = n; return l }

// WithRecheck has open connections and streams checked more often.
func (c *Config) WithRecheck(interval time.Duration) { c.recheck = interval }

// WithDefaults completes what a test does not choose.
func (c Config) WithDefaults() Config {
	c.ConfirmAfter, c.ConfirmLease = cmp.Or(c.ConfirmAfter, 6*time.Second), cmp.Or(c.ConfirmLease, 30*time.Second)
	c.SendLease = cmp.Or(c.SendLease, 30*time.Second)
	c.ConnectionAge, c.ConnectionIdle = cmp.Or(c.ConnectionAge, time.Hour), cmp.Or(c.ConnectionIdle, 10*time.Minute)
	c.Limits.Body, c.Limits.Waiting = cmp.Or(c.Limits.Body, 1<<20), cmp.Or(c.Limits.Waiting, 10_000)
	c.Limits.Bytes, c.Limits.Streams = cmp.Or(c.Limits.Bytes, 256<<20), cmp.Or(c.Limits.Streams, 8192)
	if c.Access == nil {
		c.Access, _ = access.NewAuthenticator(access.Rules{Anonymous: true}) // there is no glob that could be invalid
	}
	return c
}

// Methods are the full names of all methods of all registered services.
func (s *Server) Methods() (names []string) {
	for service, info := range s.grpc.GetServiceInfo() {
		for _, method := range info.Methods {
			names = append(names, "/"+service+"/"+method.Name)
		}
	}
	return names
}

// NeedsOf says what a method needs: the role, and whether it needs the producer or is open; known is false where the
// table does not hold the method.
func NeedsOf(method string) (role access.Role, asProducer, open, known bool) {
	n, known := needs[method]
	return n.role, n.asProducer, n.open, known
}

// KnownMethods is how many methods the table holds.
func KnownMethods() int { return len(needs) }

// Permits is what a caller lacks for a method.
func Permits(caller access.Identity, method string, request any) error {
	return permits(caller, method, request)
}

// Reasons are all reasons of answers, with their codes.
func Reasons() map[string]codes.Code {
	all := map[string]codes.Code{unexpected.reason: unexpected.code}
	for _, f := range faultTable {
		all[f.reason] = f.code
	}
	return all
}

// RetryDelays are the delays that the answers with each reason name; 0: none.
func RetryDelays() map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, f := range append([]fault{unexpected}, faultTable...) {
		all[f.reason] = 0
		for _, detail := range translate(f.kind, halfmsg.None).Details() {
			if retry, is := detail.(*errdetails.RetryInfo); is {
				all[f.reason] = retry.GetRetryDelay().AsDuration()
			}
		}
	}
	return all
}

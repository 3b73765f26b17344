// Package policy says what the messages of a producer may name and how much a producer may hold, and counts what each
// producer holds at this coordinator. Submit and Rollback are never judged: a stored message can always end.
package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/internal/ground/typedname"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Default is the default broker and the default exchange in the lists of Rules. No glob matches them.
const Default = halfmsg.DefaultBroker

// Rules are what one producer may do. Zero values allow everything.
type Rules struct {
	// Targets are globs on the host:port of callback targets. In all globs * is any text, and nothing else is special.
	Targets []string
	// Brokers are names; Exchanges and RoutingKeys are globs.
	Brokers, Exchanges, RoutingKeys []string
	// MaxBody is how many bytes a body may have.
	MaxBody int
	// MaxBytes is how many bytes the unfinished messages may have, at all coordinators together.
	MaxBytes int64
	// CallsPerSecond is how many messages may be sent a second, and at once after a pause.
	CallsPerSecond int
}

func (r *Rules) empty() bool {
	return len(r.Targets)+len(r.Brokers)+len(r.Exchanges)+len(r.RoutingKeys) == 0 && r.MaxBody == 0 && !r.counts()
}

// counts says whether the rules need to know what a producer does.
func (r *Rules) counts() bool { return r.MaxBytes > 0 || r.CallsPerSecond > 0 }

// Set is the rules of all producers.
type Set struct {
	// Named are the rules of single producers, Others those of everyone else.
	Named  map[string]Rules
	Others Rules
}

// ErrForbidden is wrapped by the error about a message that names what its producer may not name.
var ErrForbidden = errors.New("forbidden by the policy of the producer")

// ForbiddenError is ErrForbidden in words fit for the caller.
type ForbiddenError struct {
	// Field is the field of the message. Key is the key of the producer that decides about the field.
	Field, Key string

	producer, value, others string
}

// Error names the field, the value and the keys to change.
func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("%s %.100q is forbidden to producer %s: %s, or else %s, says what its messages may name",
		e.Field, e.value, e.producer, e.Key, e.others)
}

// Unwrap implements errors.Is.
func (*ForbiddenError) Unwrap() error { return ErrForbidden }

// Message is what a policy looks at in a message.
type Message struct{ Broker, Exchange, RoutingKey string }

// CheckMessage says why a message of the producer may not be sent: a *ForbiddenError.
func (p *Producer) CheckMessage(m Message) error {
	if p == nil {
		return nil
	}
	return p.rules.CheckMessage(p.name, m)
}

// CheckMessage says why a message of a producer with these rules may not be sent: a *ForbiddenError.
func (r *Rules) CheckMessage(producer string, m Message) error {
	switch {
	case len(r.Brokers) > 0 && !slices.Contains(r.Brokers, orDefault(m.Broker)):
		return forbidden(producer, "broker", "brokers", orDefault(m.Broker))
	case !allowed(r.Exchanges, m.Exchange, m.Exchange == ""):
		return forbidden(producer, "exchange", "exchanges", orDefault(m.Exchange))
	case !allowed(r.RoutingKeys, m.RoutingKey, false):
		return forbidden(producer, "routing_key", "routing_keys", m.RoutingKey)
	}
	return nil
}

// CheckTarget says why a message of the producer may not name a callback target, in the canonical form: a
// *ForbiddenError.
func (p *Producer) CheckTarget(target string) error {
	if p == nil || allowed(p.rules.Targets, hostPort(target), false) {
		return nil
	}
	return forbidden(p.name, "callback_target", "targets", target)
}

// MaxBody is how many bytes a body of the producer may have; 0: no limit of its own.
func (p *Producer) MaxBody() int {
	if p == nil {
		return 0
	}
	return p.rules.MaxBody
}

func forbidden(producer, field, key, value string) error {
	return &ForbiddenError{
		Field: field, Key: "producers." + producer + "." + key, producer: producer, value: value, others: "policy." + key,
	}
}

func orDefault(name string) string {
	if name == "" {
		return Default
	}
	return name
}

// allowed says whether a list without items, or one of its globs, allows a text. Only Default allows the default
// exchange.
func allowed(globs []string, text string, isDefault bool) bool {
	if isDefault {
		return len(globs) == 0 || slices.Contains(globs, Default)
	}
	return len(globs) == 0 || slices.ContainsFunc(globs, func(glob string) bool { return typedname.MatchText(glob, text) })
}

// hostPort is the host and the port of a callback target in its canonical form.
func hostPort(target string) string {
	scheme, rest, isURL := strings.Cut(target, "://")
	if !isURL {
		return target
	}
	authority, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	port := map[string]string{"http": ":80", "https": ":443"}[scheme]
	if port != "" && (!strings.Contains(authority, ":") || strings.HasSuffix(authority, "]")) {
		authority += port
	}
	return authority
}

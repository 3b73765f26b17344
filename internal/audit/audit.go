// Package audit keeps records of what operators change, and of calls that are refused.
//
// Each record is a line in the log, which log.level cannot silence, and an entry in Redis. What each right can do is
// kept apart, so that a flood of refused calls or of logins removes no change. Equal refusals, and equal beginnings or
// ends of sessions, become one record with a count.
package audit

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/internal/access"
)

// Via is the way by which a call came.
type Via string

// The ways.
const (
	GRPC    Via = "grpc"
	HTTP    Via = "http"
	Console Via = "console"
	CLI     Via = "cli"
	// ConfigReload is a change of the configuration's files, or SIGHUP.
	ConfigReload Via = "config"
	// File is a change of another file, such as the token file.
	File Via = "file"
)

// Action is what was done, or the full method of a refused call.
type Action string

// The actions of operators.
const (
	Retry   Action = "retry"
	Discard Action = "discard"
	Replay  Action = "replay"
	Login   Action = "login"
	Logout  Action = "logout"
	Reload  Action = "reload"
	Tokens  Action = "token"
	// AskProducer is a final question to a producer, which leaves tombstones in its database.
	AskProducer Action = "ask_producer"
	// Changes of consumers' dead letters.
	ReplayDeadLetters  Action = "replay_dead_letters"
	DiscardDeadLetters Action = "discard_dead_letters"
)

// Result is what came of an action.
type Result string

// The results.
const (
	// Begun is for a change that takes long, before it begins. Its outcome has records of its own: a coordinator that is
	// killed in between leaves this one.
	Begun   Result = "begun"
	Done    Result = "done"
	Refused Result = "refused"
	// Failed is for a change that failed, or whose outcome is unknown.
	Failed Result = "failed"
)

// Refusal is the kind of a refusal.
type Refusal string

// The kinds of refusals.
const (
	// ByIdentity: the caller has not proved who it is.
	ByIdentity Refusal = "identity"
	// ByRole: the caller's role does not allow the call.
	ByRole Refusal = "role"
	// ByProducer: the caller may not call as the producer.
	ByProducer Refusal = "producer"
	// ByPolicy: the policy of the producer does not allow what the call asks.
	ByPolicy Refusal = "policy"
)

// Record is one change by an operator, or one or more equal refusals.
type Record struct {
	// ID names a kept record. Page gives it; a Recorder ignores it.
	ID string `json:"-"`
	// Time is when the action was done, and of equal refusals the first time. A Recorder sets it where it is zero.
	Time time.Time `json:"time"`
	// Until is the last time of equal records.
	Until time.Time `json:"until,omitzero"`
	// By is access.Identity.Name, and Kind how the name was proved. A Recorder takes both from the context where they
	// are empty.
	By   string      `json:"by,omitempty"`
	Kind access.Kind `json:"kind,omitempty"`
	// From is the caller's address. A Recorder takes From and Via from the Origin of the context where they are empty.
	From string `json:"from,omitempty"`
	Via  Via    `json:"via,omitempty"`
	// Action is what was done or refused.
	Action Action `json:"action"`
	// Producer is whose messages the action concerns, if they are of one producer.
	Producer string `json:"producer,omitempty"`
	// Names are the changed messages. The log line holds all of them, and a kept record the first ones.
	Names []string `json:"names,omitempty"`
	// Destinations are where a replay published the messages, each with their number. The log has all of them, and a kept
	// record the first ones.
	Destinations []string `json:"destinations,omitempty"`
	// Filter selected the messages, where the call did not name them.
	Filter string `json:"filter,omitempty"`
	// Count is how many messages were changed, or how many calls were refused. A Recorder counts Names where it is zero.
	Count int64 `json:"count,omitempty"`
	// Reason is why, as the operator said.
	Reason string `json:"reason,omitempty"`
	Result Result `json:"result"`
	// Refusal is the kind of a refusal; empty for a change.
	Refusal Refusal `json:"refusal,omitempty"`
	// Cause is why the action failed or was refused. It never holds a secret.
	Cause string `json:"cause,omitempty"`
	// Instance is the coordinator that made the record. A Recorder sets it.
	Instance string `json:"instance,omitempty"`

	// role is that of the caller in the context.
	role access.Role
}

// Recorder keeps records.
type Recorder interface {
	// Record keeps a record. It never blocks, and is safe for concurrent use. Equal refusals are joined, and equal
	// sessions.
	Record(ctx context.Context, r Record)
}

// Nowhere is a Recorder that keeps nothing.
var Nowhere Recorder = nowhere{}

type nowhere struct{}

func (nowhere) Record(context.Context, Record) {}

// Origin is where a call came from.
type Origin struct {
	Via Via
	// From is the caller's address.
	From string
}

type originKey struct{}

// WithOrigin returns a context for a call with an origin.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginOf returns the origin of a call; the zero value where none was given.
func OriginOf(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	return o
}

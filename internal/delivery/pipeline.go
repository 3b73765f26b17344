package delivery

import (
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Pipeline names every hand-over of a message between the stages of a coordinator. The methods stand in the order in
// which a message passes them: a producer stores a half message, commits and submits; the confirm stage asks the
// producer; the send stage publishes until the broker acknowledges; then the markers are deleted and a receipt remains.
//
// The stages need each other, so the fields are set after the stages are made, and before any stage gets a message.
type Pipeline struct {
	Confirm ConfirmStage
	Send    SendStage
	// Watchers get each move that this coordinator has stored. They must not block.
	Watchers []halfmsg.Watcher
	// ConfirmLoop, SendLoop and DeleteLoop claim what is due in the store; nil where no loop runs.
	ConfirmLoop, SendLoop, DeleteLoop Waker
}

// ConfirmStage asks producers and deletes their markers.
type ConfirmStage interface {
	// Offer takes messages that a Submit has claimed and whose leases end at until.
	Offer(claims []halfmsg.Claim, until time.Time)
	// OfferAcknowledged takes ACKNOWLEDGED messages whose leases end at until and whose markers are to be deleted.
	OfferAcknowledged(claims []halfmsg.Claim, until time.Time)
	// DeleteLeftMarkers deletes in the background the markers that may be left of acknowledged messages.
	DeleteLeftMarkers(claims []halfmsg.Claim)
}

// SendStage publishes messages.
type SendStage interface {
	// Offer takes SENDABLE messages whose leases end at until.
	Offer(claims []halfmsg.Claim, until time.Time)
}

// Waker is a loop that can be asked for a pass at once. Wake must not block.
type Waker interface{ Wake() }

// Submitted hands over what a Submit has claimed, from the server to the confirm stage.
func (p *Pipeline) Submitted(claims []halfmsg.Claim, until time.Time) { p.Confirm.Offer(claims, until) }

// Committed hands over messages with the verdict COMMITTED, from the confirm stage to the send stage.
func (p *Pipeline) Committed(claims []halfmsg.Claim, until time.Time) { p.Send.Offer(claims, until) }

// Acknowledged hands over messages that the broker has, from the send stage to the confirm stage. Their markers were to
// be deleted before they were published; some may be left.
func (p *Pipeline) Acknowledged(claims []halfmsg.Claim) { p.Confirm.DeleteLeftMarkers(claims) }

// AcknowledgedMarked hands over messages that the broker has and whose markers are deleted only now, from the send
// stage to the confirm stage.
func (p *Pipeline) AcknowledgedMarked(claims []halfmsg.Claim, until time.Time) {
	p.Confirm.OfferAcknowledged(claims, until)
}

// Moved implements halfmsg.Watcher.
func (p *Pipeline) Moved(moves []halfmsg.Moved) {
	for _, watcher := range p.Watchers {
		watcher.Moved(moves)
	}
}

// Due asks the loop that claims messages of a state for a pass: an operator has made some due, or there is room for
// more.
func (p *Pipeline) Due(state halfmsg.State) {
	switch state {
	case halfmsg.Pending, halfmsg.Abandoned:
		wake(p.ConfirmLoop)
	case halfmsg.Sendable, halfmsg.Dead:
		wake(p.SendLoop)
	case halfmsg.Acknowledged:
		wake(p.DeleteLoop)
	}
}

func wake(loop Waker) {
	if loop != nil {
		loop.Wake()
	}
}

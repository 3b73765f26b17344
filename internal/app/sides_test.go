package app

import (
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

func TestMarkersThatAnOwnerMayHaveLeftAreDeletedOnceMore(t *testing.T) {
	usual := halfmsg.Claim{Message: halfmsg.Message{Name: halfmsg.Name{Producer: "orders", ID: "usual"}}}
	taken, delayed := usual, usual
	taken.ID, taken.Copies = "taken over", 1
	delayed.ID, delayed.Delay = "delayed", time.Second
	left := markersLeft([]halfmsg.Claim{usual, taken, delayed})
	if len(left) != 2 || left[0].ID != "taken over" || left[1].ID != "delayed" {
		t.Errorf("left are %+v", left)
	}
}

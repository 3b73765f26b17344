package app_test

import (
	"testing"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
)

// A forged letter of the producer orders names the exchange payroll.
func TestLettersGoWhereTheirProducerMay(t *testing.T) {
	t.Parallel()
	settings := config.Config{
		Producers: map[string]config.Producer{"orders": {Exchanges: []string{"shop.*", "(default)"}}},
		DeadLetters: map[string]config.DeadLetters{
			"own":  {Queue: "own.dead", Broker: "(default)", Exchanges: []string{"payments"}},
			"away": {Queue: "dead", Broker: "events", Exchanges: []string{"payments"}},
		},
	}
	for name, want := range map[string]map[string]bool{
		"dead": {"payroll": false, "shop.paid": true, "": true, "payments": false},
		"own":  {"payroll": false, "shop.paid": false, "": false, "payments": true},
		// The queue itself, as events.dead_letter_queues names it.
		"own.dead": {"payroll": false, "shop.paid": false, "payments": true},
	} {
		may := app.LetterRule(func() *config.Config { return &settings }, name, "")
		for exchange, allowed := range want {
			if err := may("orders", exchange, "paid"); (err == nil) != allowed {
				t.Errorf("%s to exchange %q: %v", name, exchange, err)
			}
		}
	}
}

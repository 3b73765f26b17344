package pages

import (
	"net/http"
	"strings"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// foundData is the data of the page of messages with an id.
type foundData struct {
	ID      string
	Records []*adminv1.MessageRecord
	// Prefix leads to the messages whose ids begin so, by state.
	Prefix []stateTab
}

// find leads from PRODUCER/ID, or from an id that one producer uses, to the message's page.
func (p *Pages) find(r *http.Request) answer {
	text := strings.TrimSpace(r.FormValue("name"))
	if strings.Contains(text, "/") {
		name, err := halfmsg.ParseName(text)
		if err != nil {
			return trouble(http.StatusBadRequest, "Invalid name", err.Error())
		}
		return answer{redirect: address(name.Producer, name.ID)}
	}
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return notOpen()
	}
	request := &adminv1.FindMessagesRequest{Id: text}
	for _, producer := range p.config.Peers().Producers() { // those whose messages are all finished
		request.Producers = append(request.Producers, producer.Name)
	}
	request.Producers = request.GetProducers()[:min(len(request.GetProducers()), maxNames)]
	found, err := admin.FindMessages(r.Context(), request)
	if err != nil {
		return trouble(statusOf(err), "Nothing was found", err.Error())
	}
	records := found.GetRecords()
	if len(records) == 1 {
		return answer{redirect: address(records[0].GetProducer(), text)}
	}
	data := foundData{ID: text, Records: records}
	for _, state := range shownStates {
		of := ofState(state)
		of.ID = text
		data.Prefix = append(data.Prefix, stateTab{State: of.State, Link: "/messages?" + of.Query()})
	}
	a := answer{page: "found", title: "Messages with the id " + text, data: data}
	if len(records) == 0 {
		a.status = http.StatusNotFound
	}
	return a
}

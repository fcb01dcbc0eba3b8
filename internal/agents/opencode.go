package agents

import "berth/jobs"

// opencode reads opencode run --format json. It has no last event.
type opencode struct{ session string }

type opencodeLine struct {
	Type    string
	Session string `json:"sessionID"`
	Part    struct {
		Text   string
		Tool   string
		ID     string `json:"callID"`
		Reason string
		State  struct {
			Status string
			Input  input
			Output string
			Error  string
		}
		USD    float64 `json:"cost"`
		Tokens *struct {
			Input     int64
			Output    int64
			Reasoning int64
			Cache     struct{ Read, Write int64 }
		}
	}
	Error struct {
		Name string
		Data struct{ Message string }
	}
}

func (o *opencode) line(d *Decoder, b []byte) bool {
	var l opencodeLine
	if !read(b, &l) || l.Type == "" {
		return false
	}
	if s := session(l.Session); s != "" && o.session == "" {
		o.session = s
		d.emit(Event{Kind: KindStart, Session: s})
	}
	switch p := &l.Part; l.Type {
	case "step_start":
		d.emit(Event{Kind: KindTurn})
	case "text":
		d.message(KindMessage, p.Text, false)
	case "reasoning":
		d.message(KindThinking, p.Text, false)
	case "tool_use":
		if p.State.Status == "completed" || p.State.Status == "error" {
			d.call(p.Tool, p.State.Input, p.ID, false)
			said, failed := p.State.Output, p.State.Status == "error"
			if failed {
				said = p.State.Error
			}
			d.result(said, p.ID, failed, false)
		}
	case "step_finish":
		u := jobs.Usage{USD: dollars(p.USD)}
		if t := p.Tokens; t != nil {
			u.Input, u.Output, u.CacheRead, u.CacheWrite =
				tokens(t.Input), tokens(t.Output)+tokens(t.Reasoning), tokens(t.Cache.Read), tokens(t.Cache.Write)
		}
		d.used(u)
	case "error":
		said := l.Error.Data.Message
		if said == "" {
			said = l.Error.Name
		}
		e := Event{Kind: KindError, Text: text(said, maxShort), Reason: reasonOf(said)}
		if l.Error.Name == "ProviderAuthError" {
			e.Reason = ReasonAuth
		}
		d.emit(e)
	default:
		return d.unknown()
	}
	return true
}

func (*opencode) end(*Decoder) {}

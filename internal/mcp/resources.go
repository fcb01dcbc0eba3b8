package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"berth/jobs"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// scheme begins the addresses of resources: berth://job/ID, and below it diff, stdout and
// stderr.
const scheme = "berth://job/"

func (s *Server) resources() {
	for _, t := range []sdk.ResourceTemplate{
		{Name: "job", Title: "A job's record", MIMEType: "application/json", URITemplate: scheme + "{id}",
			Description: "all that is known of a job, as berth status --json prints it"},
		{Name: "diff", Title: "A job's patch", MIMEType: "text/x-diff", URITemplate: scheme + "{id}/diff",
			Description: "what a job has changed; task_diff reads it in pages"},
		{Name: "stdout", Title: "A job's output", MIMEType: "text/plain", URITemplate: scheme + "{id}/stdout",
			Description: "what a job's command has written; task_logs reads it in pages"},
		{Name: "stderr", Title: "A job's error output", MIMEType: "text/plain", URITemplate: scheme + "{id}/stderr", Description: "likewise"},
	} {
		s.sdk.AddResourceTemplate(&t, s.resource)
	}
}

// resource reads one; of a long text it is the first page, and says so.
func (s *Server) resource(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	id, part, _ := strings.Cut(strings.TrimPrefix(r.Params.URI, scheme), "/")
	kind, text := "text/plain", ""
	page := func(p *Page, err error, with string) error {
		if err != nil {
			return err
		}
		if text = p.Text; p.More {
			text += fmt.Sprintf("\n[cut after %d bytes: %s with offset %d goes on]\n", p.NextOffset, with, p.NextOffset)
		}
		return nil
	}
	all := span{Limit: mostPage}
	var err error
	switch part {
	case "":
		kind = "application/json"
		var out *statusOut
		if out, err = s.status(ctx, nil, idIn{ID: id}); err == nil {
			var b []byte
			b, err = encode(out)
			text = string(b)
		}
	case "diff":
		kind = "text/x-diff"
		p, perr := s.diff(ctx, nil, diffIn{id, all})
		err = page(p, perr, "task_diff")
	case "stdout", "stderr":
		p, perr := s.logs(ctx, nil, logsIn{ID: id, Stream: part, span: all})
		err = page(p, perr, "task_logs")
	default:
		return nil, sdk.ResourceNotFoundError(r.Params.URI)
	}
	switch {
	case jobs.KindOf(err) == jobs.KindNotFound:
		return nil, sdk.ResourceNotFoundError(r.Params.URI)
	case err != nil:
		_, text := failure(err)
		return nil, errors.New(text)
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, MIMEType: kind, Text: text}}}, nil
}

func (s *Server) prompts() {
	s.sdk.AddPrompt(&sdk.Prompt{Name: "task_file", Title: "Write a task file", Description: "how to write a task file for berth, for a goal",
		Arguments: []*sdk.PromptArgument{
			{Name: "goal", Description: "what is to be done", Required: true},
			{Name: "agent", Description: "the agent that does it, such as claude; without it a command does"},
		}}, s.taskPrompt)
}

// mostGoal bounds what a prompt takes, in bytes.
const mostGoal = 64 << 10

func (s *Server) taskPrompt(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
	goal, agent := r.Params.Arguments["goal"], r.Params.Arguments["agent"]
	if strings.TrimSpace(goal) == "" || len(goal) > mostGoal || len(agent) > 100 {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("goal must have 1 to %d bytes", mostGoal)}
	}
	text := "Write a task file for berth that does this:\n\n" + plain([]byte(goal)) + "\n\n"
	if agent != "" {
		text += "The agent " + jobs.Printable(agent) + " does it ([agent] use).\n\n"
	}
	text += "It has TOML between two lines of +++, and below them, as Markdown, what the agent is to do. This is an example:\n\n" + s.Guide +
		"\n\nGive it a scope, a limit of time, and done commands that prove the result. End the prompt with a list under \"## Done when\". " +
		"Ask for no network and no rights that it does not need. Show the file to the user"
	if s.Submit {
		text += "; then task_submit submits it, and a person confirms that"
	}
	return &sdk.GetPromptResult{Description: "a task file",
		Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: text + "."}}}}, nil
}

// Package agentmcp connects tools of package agent with servers and clients of the Model Context
// Protocol. A program that does not import this package contains no code for the protocol.
//
// [Tools] makes the tools of a server available in a run: code in the sandbox calls them as
// Python functions. This program makes the calls, with its own credentials for the server. Code
// can compose calls in one step, and sees only their results:
//
//	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: exec.Command("github-mcp-server", "stdio")}, nil)
//	…
//	tools, err := agentmcp.Tools(ctx, session, &agentmcp.ToolsParams{
//		Prefix: "github_",
//		Allow:  []string{"list_issues", "get_issue"},
//	})
//	…
//	run, err := agent.Begin(ctx, sb, &agent.Params{Tools: tools})
//	…
//	step, err := run.Exec(ctx, "[i['title'] for i in github_list_issues(repo='x')['issues']]")
//
// [AddTools] is the reverse: it serves tools of this program to any client of the protocol.
//
// # What a server may do
//
// The list of tools comes from the server and is not trusted. The server's annotations
// (readOnlyHint and others) decide nothing: [ToolsParams] decides which tools code may call. Names,
// descriptions and schemas are bounded. Invisible characters are left out of texts that models
// read. Schemas that refer to other documents are refused. Arguments are checked against the schema
// before they are sent. A description or a result may still ask a model to do harm. Allow only
// tools whose worst possible harm you can accept.
package agentmcp

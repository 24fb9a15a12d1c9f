// Package agentmcp connects tools of package agent with servers and clients of the Model
// Context Protocol. A program that does not import it links nothing of the protocol.
//
// [Tools] takes the tools of a server into a run: code in the sandbox calls them as Python
// functions, and the calls are made from this program, which has the server's credentials.
// Code can compose them in one step, and sees only what they return:
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
// [AddTools] is the other way: it serves tools of this program to any client of the
// protocol.
//
// # What a server may do
//
// A server's list of tools is text of somebody else. Its annotations (readOnlyHint and the
// others) decide nothing: [ToolsParams] says which tools code may call. Names, descriptions
// and schemas are bounded, characters that cannot be seen are left out of what models read,
// references of schemas to other documents are refused, and arguments are checked against
// the schema before they are sent. A description may still tell a model to do harm, and so
// may a result: such a text can do all that code may do with its tools.
package agentmcp

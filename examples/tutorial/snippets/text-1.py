with open("article.txt") as file:
    article = file.read()

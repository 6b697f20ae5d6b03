document.getElementById("page").textContent = "Outlast";
